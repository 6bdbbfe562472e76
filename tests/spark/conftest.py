"""One Spark for all tests of a run: starting one takes seconds."""

import pytest
from pyspark import SparkContext

# Tests run for seconds: quick compilation matters more than fast code.
QUICK = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark():
    """A session on two local cores."""
    from tapewire import spark as tws

    yield tws.session("tests", master="local[2]", conf=QUICK)
    # A test that needs no Spark may have ended it, and a later one may have started its own.
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
