"""One Spark for all tests of a run: starting one takes seconds."""

import pytest
from pyspark import SparkContext

# Tests run for seconds: quick compilation matters more than fast code.
QUICK = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def _spark_ends():
    yield
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


@pytest.fixture(scope="module")
def spark(_spark_ends):
    """A session on two local cores; a new one if another module has ended it."""
    from tapewire import spark as tws

    running = SparkContext._active_spark_context is not None
    return tws.session("tests", master="local[2]", conf=None if running else QUICK)
