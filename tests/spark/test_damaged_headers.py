"""A log whose first segment is damaged in its header, through Spark: an error, or passed over."""

import pytest
from pyspark.errors import AnalysisException

import tapewire as tw
from tapewire import spark as tws
from tapewire.queue import status
from tests.support.crafted import break_header
from tests.support.feature_tapes import Event, TapeWriter, instrument

RECORDS = 200


@pytest.fixture
def log(tmp):
    tape = TapeWriter(tmp, instrument())
    with tw.open_publisher(tmp / "book", segment_bytes=8192) as writer:
        for n in range(RECORDS):
            kind = "snapshot" if n % 70 == 0 else "diff"
            event = Event(1_000 + n, kind, ((1000 - n % 5, 1 + n),), ((1010 + n % 7, 1 + n),))
            type_id, payload = tape.payload(event)
            writer.append(type_id, payload, timestamp_ns=event.time)
    return tmp / "book"


def test_a_damaged_first_header_is_told_or_passed_over(spark, log):
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
