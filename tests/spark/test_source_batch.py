"""``spark.read.format("tapewire")`` through Spark itself."""

import random
import sys
import threading

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F

import tapewire as tw
from tapewire import spark as tws
from tapewire.config import Retention
from tapewire.spark.source import source_for
from tests.support import crafted
from tests.support.spark_views import read_by_reader

PAUSE = 0.005  # of a writer in the background, which must not use up a core
NAMES = ("seq", "timestamp_ns", "type_id", "flags", "payload")


@pytest.fixture
def load(spark):
    """A new DataFrame with options."""

    def load(path, **options):
        return spark.read.format("tapewire").options(**options).load(str(path))

    return load


def rows(frame):
    return [
        (row.seq, row.timestamp_ns, row.type_id, row.flags, bytes(row.payload))
        for row in frame.select(*NAMES).collect()
    ]


def append(writer, count, rng):
    for _ in range(count):
        writer.append(rng.randrange(4), rng.randbytes(rng.choice([0, 13, 64, 300])))


def write(path, count, **options):
    options = {"segment_bytes": 65536, "index_stride": 16, **options}
    with tw.open_publisher(path, **options) as writer:
        append(writer, count, random.Random(1))
    return path


@pytest.mark.parametrize("partitions", [1, 16])
def test_records_are_what_a_reader_reads(load, tmp, partitions):
    queue = write(tmp / "q", 3_000)
    frame = load(queue, partitions=partitions)
    assert frame.rdd.getNumPartitions() == partitions
    assert rows(frame) == read_by_reader(queue)


def test_records_are_a_prefix_of_the_log_while_a_writer_continues(load, tmp):
    """Every read is a prefix of the log, without gaps, while it grows and rolls."""
    stop = threading.Event()
    with tw.open_publisher(tmp / "q", segment_bytes=65536, index_stride=16) as writer:
        append(writer, 500, random.Random(1))

        def go_on():
            rng = random.Random(2)
            while not stop.wait(PAUSE):
                append(writer, 50, rng)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            seen = [rows(load(tmp / "q", partitions=n)) for n in (1, 16)]
            rolls = writer.metrics()["rolls"]
        finally:
            stop.set()
            thread.join()
        every = read_by_reader(tmp / "q")
    assert rolls > 3
    assert 500 <= len(seen[0]) < len(seen[1]) < len(every)
    for found in seen:
        assert found == every[: len(found)]


def test_while_segments_are_retired_a_read_is_complete_or_reports_what_is_gone(load, tmp):
    stop = threading.Event()
    payloads = []
    with (
        tw.open_publisher(
            tmp / "q", segment_bytes=65536, index_stride=16, retention=Retention()
        ) as writer,
        tw.open_subscriber(tmp / "q", "consumer") as consumer,
    ):

        def go_on():
            while not stop.wait(PAUSE):
                for _ in range(50):
                    payloads.append(len(payloads).to_bytes(500, "little"))
                    writer.append(1, payloads[-1])
                while consumer.next():
                    pass
                consumer.commit()

        thread = threading.Thread(target=go_on)
        thread.start()
        reads = []
        try:
            for _ in range(3):
                try:
                    reads.append(rows(load(tmp / "q", partitions=4)))
                except (PythonException, AnalysisException) as error:
                    reads.append(str(error))
        finally:
            stop.set()
            thread.join()
        assert writer.metrics()["segments_retired"] > 0
    for found in reads:
        if isinstance(found, str):
            assert "SegmentMissing" in found
        else:
            first = found[0][0]
            assert [row[0] for row in found] == list(range(first, first + len(found)))
            assert [row[4] for row in found] == payloads[first : first + len(found)]
    assert rows(load(tmp / "q", partitions=4)) == read_by_reader(tmp / "q")


def test_the_schema_is_not_null_and_has_microseconds(load, tmp):
    frame = load(write(tmp / "q", 10))
    assert [field.nullable for field in frame.schema] == [False] * 7
    row = frame.withColumn("us", F.unix_micros("timestamp")).first()
    assert row.us == row.timestamp_ns // 1000


def test_an_empty_queue_has_columns_and_no_rows(load, tmp):
    frame = load(write(tmp / "q", 0))
    assert frame.count() == 0
    assert frame.columns[0] == "seq"


def test_a_schema_chooses_columns(spark, tmp):
    queue = write(tmp / "q", 100)
    reader = spark.read.format("tapewire").schema("payload binary, seq bigint")
    frame = reader.load(str(queue))
    assert frame.columns == ["payload", "seq"]
    assert [row.seq for row in frame.collect()] == list(range(100))


def test_a_schema_with_an_unknown_column_is_reported(spark, tmp):
    queue = write(tmp / "q", 1)
    frame = spark.read.format("tapewire").schema("price bigint").load(str(queue))
    with pytest.raises(AnalysisException, match="no such column: column=price; available: seq"):
        frame.collect()


def test_several_paths_are_read_together(spark, tmp):
    paths = [str(write(tmp / name, 10)) for name in ("a", "b")]
    frame = spark.read.format("tapewire").load(paths)
    assert {(row.queue, row["count"]) for row in frame.groupBy("queue").count().collect()} == {
        ("a", 10),
        ("b", 10),
    }


def test_ranges_and_types_are_options(load, tmp):
    queue = write(tmp / "q", 1_000)
    wanted = read_by_reader(queue, lambda r: 100 <= r.seq < 700 and r.type_id in (1, 3))
    assert rows(load(queue, seq_from=100, seq_to=700, types="1,0x3", partitions=4)) == wanted


def test_messages_come_decoded(load, tmp, own_messages):
    @tw.message(0x2001)
    class Fill:
        price: tw.i64
        name: tw.char[8]
        levels: tw.i64[2]

    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        for n in range(100):
            writer.append_message(Fill(n, f"n{n}", (n, -n)))
    frame = load(tmp / "q", view="messages", type="Fill", partitions=3)
    assert [tuple(row) for row in frame.select("price", "name", "levels").collect()] == [
        (n, f"n{n}", [n, -n]) for n in range(100)
    ]


def test_gaps_are_rows(load, tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 5), crafted.numbered(8, 5))
    found = load(queue, view="gaps").collect()
    assert [(row.first, row.last, row.seq) for row in found] == [(5, 7, 8)]


def damaged(tmp):
    parts = [crafted.numbered(n * 63, 63) for n in range(3)]
    queue = crafted.write(tmp, *parts)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    return queue


def test_damage_names_its_segment_through_spark(load, tmp):
    with pytest.raises(PythonException) as caught:
        load(damaged(tmp), partitions=4).collect()
    assert "tapewire.errors.CorruptRecord: " in str(caught.value)
    assert "000000001.q at offset" in str(caught.value)


def test_damage_is_skipped_and_reported_by_gaps(load, tmp):
    queue = damaged(tmp)
    found = [row.seq for row in load(queue, partitions=4, on_damage="skip").collect()]
    assert found == [n for n in range(189) if n != 93]
    [gap] = load(queue, view="gaps", partitions=4).collect()
    assert (gap.first, gap.last) == (93, 93)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "seq"}, "InvalidOption: no such option: colums; did you mean columns?"),
        (
            {"columns": "price"},
            "InvalidOption: the view has no such column: column=price; available",
        ),
        ({"time_from": "noon"}, "InvalidOption: invalid time: time_from='noon'"),
        ({"view": "candles"}, "InvalidOption: view must be one of records, messages"),
    ],
)
def test_an_invalid_option_is_reported_at_load(load, tmp, options, message):
    queue = write(tmp / "q", 1)
    with pytest.raises(AnalysisException) as caught:
        load(queue, **options)
    assert message in str(caught.value)


def test_a_missing_path_is_reported_at_load(load, tmp):
    with pytest.raises(AnalysisException, match=r"no such log: '.*nowhere'"):
        load(tmp / "nowhere")


def test_a_directory_that_is_not_a_log_is_reported_at_load(load, tmp):
    with pytest.raises(AnalysisException, match="NotALog: there is no log in this directory"):
        load(tmp)


def test_two_queries_on_one_frame_do_not_disturb_each_other(load, tmp):
    frame = load(write(tmp / "q", 1_000), partitions=4)
    assert frame.filter("seq < 10").count() == 10
    assert frame.count() == 1_000
    assert frame.filter("type_id = 1").count() + frame.filter("type_id <> 1").count() == 1_000


def test_a_live_queue_on_a_remote_master_is_refused_with_the_remedy(spark, load, tmp):
    remote = source_for(spark)
    remote.master = "spark://cluster:7077"
    spark.dataSource.register(remote)
    try:
        with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
            writer.append(1, b"x")
            with pytest.raises(AnalysisException) as caught:
                load(tmp / "q").count()
            assert load(tmp / "q", shared="true").count() == 1
        assert load(tmp / "q").count() == 1  # closed: any process may read it
    finally:
        tws.register(spark)
    assert "queue=q, master=spark://cluster:7077" in str(caught.value)
    assert "read an archive of it" in str(caught.value)


def test_a_plain_session_knows_the_format_after_register(spark, tmp):
    plain = spark.newSession()
    tws.register(plain)
    assert plain.read.format("tapewire").load(str(write(tmp / "q", 7))).count() == 7


def test_a_plain_session_reads_with_the_python_that_registered(spark, load, tmp, monkeypatch):
    """By default, Spark uses the first python3 on the path, which may not have Tapewire."""
    queue = write(tmp / "q", 10)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    tws.register(spark)
    assert spark.sparkContext.pythonExec == sys.executable
    assert load(queue).count() == 10


def test_a_python_that_was_chosen_stays(spark, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    tws.register(spark)
    assert spark.sparkContext.pythonExec == "python3"
    monkeypatch.undo()
    tws.register(spark)
