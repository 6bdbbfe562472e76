"""The format as Spark uses it: created from options, sent to other processes. No JVM."""

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
    """The part of a session that `source_for` uses."""

    class conf:
        @staticmethod
        def get(name, default):
            return {"spark.master": "spark://cluster:7077"}.get(name, default)


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(1, b"x")
    return str(tmp / "q")


def test_the_schema_has_the_requested_columns(queue):
    source = TapewireSource({"path": queue, "columns": "seq,queue"})
    assert source.schema() == schemas.struct_type(schemas.select(schemas.RECORDS, ["seq", "queue"]))


def test_a_reader_can_be_sent_to_an_executor(queue):
    source = TapewireSource({"path": queue, "columns": "payload"})
    reader = source.reader(source.schema())
    parts = cloudpickle.loads(cloudpickle.dumps(reader.partitions()))
    sent = cloudpickle.loads(cloudpickle.dumps(reader))
    assert [b.to_pylist() for part in parts for b in sent.read(part)] == [[{"payload": b"x"}]]


def test_the_class_of_a_session_carries_its_master():
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


def test_a_partition_that_spark_adds_has_no_rows(queue):
    from pyspark.sql.datasource import InputPartition

    source = TapewireSource({"path": queue})
    assert list(source.reader(source.schema()).read(InputPartition(None))) == []


def test_a_query_has_two_tasks_per_core_by_default():
    assert batch.wanted_tasks(ReadOptions(), 8) == 16
    assert batch.wanted_tasks(ReadOptions(partitions=3), 8) == 3
    assert batch.wanted_tasks(ReadOptions(), None) >= 2


def test_a_schema_may_allow_nulls(queue):
    source = TapewireSource({"path": queue})
    asked = sql.StructType([sql.StructField("seq", sql.LongType(), nullable=True)])
    reader = source.reader(asked)
    [found] = [b for part in reader.partitions() for b in reader.read(part)]
    assert found.schema.field("seq").nullable


def test_importing_starts_no_jvm():
    script = (
        "import sys; from tapewire import spark;"
        "assert 'pyarrow' not in sys.modules, 'pyarrow';"
        "from pyspark import SparkContext; assert SparkContext._active_spark_context is None"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("view", ["trades", "book", "features", "gaps"])
def test_missing_instruments_are_reported_at_load(queue, view):
    """Not in a task of the query."""
    source = TapewireSource({"path": queue, "view": view, "instruments": "nowhere.json"})
    with pytest.raises(tw.InvalidOption, match=r"instruments=nowhere\.json"):
        source.schema()


def test_instruments_are_refused_for_views_that_have_none(queue):
    source = TapewireSource({"path": queue, "instruments": "nowhere.json"})
    with pytest.raises(tw.InvalidOption, match="for trades, book, features and gaps"):
        source.schema()


def test_an_invalid_stream_raises_its_error_at_the_first_call(queue):
    """PySpark replaces an error that `streamReader` itself raises."""
    source = TapewireSource({"path": queue, "view": "book"})
    reader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, lambda: reader.partitions({}, {})):
        with pytest.raises(tw.InvalidOption, match="directory for the state"):
            ask()
    reader.stop()
