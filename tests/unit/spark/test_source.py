"""The format as Spark handles it: made from options, sent to other processes. No JVM."""

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql import types as sql

import tapewire as tw
from tapewire.scan.options import ReadOptions
from tapewire.spark.reading import batch, schemas
from tapewire.spark.source import TapewireSource, source_for


class FakeSession:
    """What `source_for` asks a session."""

    class conf:
        @staticmethod
        def get(name, default):
            return {"spark.master": "spark://cluster:7077"}.get(name, default)


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(1, b"x")
    return str(tmp / "q")


def test_the_schema_has_the_columns_asked_for(queue):
    source = TapewireSource({"path": queue, "columns": "seq,queue"})
    assert source.schema() == schemas.struct_type(schemas.select(schemas.RECORDS, ["seq", "queue"]))


def test_a_reader_can_be_sent_to_an_executor(queue):
    source = TapewireSource({"path": queue, "columns": "payload"})
    reader = source.reader(source.schema())
    parts = cloudpickle.loads(cloudpickle.dumps(reader.partitions()))
    sent = cloudpickle.loads(cloudpickle.dumps(reader))
    assert [b.to_pylist() for part in parts for b in sent.read(part)] == [[{"payload": b"x"}]]


def test_the_class_of_a_session_takes_its_master_along():
    text = cloudpickle.dumps(source_for(FakeSession()))
    script = (
        "import sys; from pyspark import cloudpickle;"
        "source = cloudpickle.loads(sys.stdin.buffer.read());"
        "print(source.name(), source.master, source.parallelism)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=text, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode().split() == ["tapewire", "spark://cluster:7077", "None"]


def test_a_live_queue_is_refused_by_the_class_of_a_remote_session(queue):
    source = source_for(FakeSession())({"path": queue})
    with tw.open_publisher(queue), pytest.raises(tw.InvalidOption, match="master=spark://cluster"):
        source.reader(source.schema())


def test_nothing_is_read_of_a_partition_that_spark_makes_up(queue):
    from pyspark.sql.datasource import InputPartition

    source = TapewireSource({"path": queue})
    assert list(source.reader(source.schema()).read(InputPartition(None))) == []


def test_a_query_has_two_tasks_a_core_unless_it_says_otherwise():
    assert batch.wanted_parts(ReadOptions(), 8) == 16
    assert batch.wanted_parts(ReadOptions(partitions=3), 8) == 3
    assert batch.wanted_parts(ReadOptions(), None) >= 2


def test_a_schema_may_say_that_columns_may_be_null(queue):
    source = TapewireSource({"path": queue})
    asked = sql.StructType([sql.StructField("seq", sql.LongType(), nullable=True)])
    reader = source.reader(asked)
    [found] = [b for part in reader.partitions() for b in reader.read(part)]
    assert found.schema.field("seq").nullable


def test_importing_it_starts_nothing():
    script = (
        "import sys; from tapewire import spark;"
        "assert 'pyarrow' not in sys.modules, 'pyarrow';"
        "from pyspark import SparkContext; assert SparkContext._active_spark_context is None"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("view", ["trades", "book", "features", "gaps"])
def test_instruments_that_are_not_there_are_told_at_load(queue, view):
    """Not by a task of the query."""
    source = TapewireSource({"path": queue, "view": view, "instruments": "nowhere.json"})
    with pytest.raises(tw.InvalidOption, match=r"instruments=nowhere\.json"):
        source.schema()


def test_instruments_are_refused_where_no_row_names_one(queue):
    source = TapewireSource({"path": queue, "instruments": "nowhere.json"})
    with pytest.raises(tw.InvalidOption, match="for trades, book, features and gaps"):
        source.schema()


def test_a_stream_that_cannot_be_says_why_when_spark_asks_first(queue):
    """An error of `streamReader` itself is lost behind one of PySpark's own."""
    source = TapewireSource({"path": queue, "view": "book"})
    reader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, lambda: reader.partitions({}, {})):
        with pytest.raises(tw.InvalidOption, match="folder for the state"):
            ask()
    reader.stop()
