"""import → archive → Parquet → archive: every record, sequence number and time is unchanged."""

import os

import pytest
from pyspark.sql import functions as F

from tapewire import ingest
from tapewire.queue import find_queues
from tests.support.marketdata import capture
from tests.support.records import stored

DAYS = ("binance/usdm_ethusdt_20240718.gz", "binance/usdm_ethusdt_20240719.gz")


@pytest.fixture(scope="module")
def imported(module_tmp):
    ingest.run("binance-usdm", [capture(day) for day in DAYS], module_tmp / "archive")
    return module_tmp / "archive"


def content(archive):
    """Every record of every log, by the log's path below the archive."""
    return {os.path.relpath(path, archive): stored(path) for path in find_queues(archive)}


def test_a_real_capture_through_parquet_is_the_same_records(spark, imported, tmp):
    columns = ["seq", "timestamp_ns", "type_id", "flags", "payload", "queue"]
    archive = spark.read.format("tapewire").load(str(imported))
    archive.select(columns).write.parquet(str(tmp / "table"))
    table = spark.read.parquet(str(tmp / "table"))
    (
        table.repartition(3, F.col("seq") % 5)  # out of order as far as possible
        .write.format("tapewire")
        .option("instruments", str(imported))
        .mode("append")
        .save(str(tmp / "again"))
    )
    before = content(imported)
    assert len(before) >= 4
    assert sum(map(len, before.values())) > 10_000
    assert content(tmp / "again") == before
    instruments = "instruments.json"
    assert (tmp / "again" / instruments).read_bytes() == (imported / instruments).read_bytes()
