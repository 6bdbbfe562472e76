"""One Spark for all tests of a run: starting one takes seconds."""

import pytest


@pytest.fixture(scope="session")
def spark():
    """A session on two local cores."""
    from tapewire import spark as tws

    session = tws.session("tests", master="local[2]", conf={"spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()
