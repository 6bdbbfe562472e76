"""A log whose first segment is damaged in its header, through Spark: an error, or skipped."""

import pytest
from pyspark.errors import AnalysisException

from tapewire import spark as tws
from tapewire.queue import status
from tests.support.crafted import break_header
from tests.support.feature_tapes import segmented_book

RECORDS = 200


@pytest.fixture
def log(tmp):
    return segmented_book(tmp, RECORDS)


def test_a_damaged_first_header_is_reported_or_skipped(spark, log):
    tws.register(spark)
    first, second = status(log).segments[:2]
    break_header(first.path)
    source = spark.read.format("tapewire")
    with pytest.raises(AnalysisException, match=r"segment header is damaged.*000000000\.q"):
        source.load(str(log)).collect()
    source = source.option("on_damage", "skip")
    records = source.load(str(log)).select("seq").collect()
    assert [row.seq for row in records] == list(range(second.first_seq, RECORDS))
    book = source.option("view", "book").load(str(log)).select("seq", "trusted").collect()
    snapshot = min(n for n in range(0, RECORDS, 70) if n >= second.first_seq)
    assert [row.seq for row in book if row.trusted] == list(range(snapshot, RECORDS))
