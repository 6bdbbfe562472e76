"""``df.writeStream.format("tapewire")``: every micro-batch once."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.support.records import stored
from tests.support.staged import LOG, rows

SCHEMA = (
    "timestamp_ns bigint, type_id int, flags int, payload binary, seq bigint, "
    "venue string, symbol string, stream string"
)
AGE = 1_700_000_000


def put(directory, number, batch):
    """A file for the stream, complete when it becomes visible; Spark takes files by age."""
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_batches([batch]), directory / f".{number}")
    os.utime(directory / f".{number}", (AGE + number, AGE + number))
    os.rename(directory / f".{number}", directory / f"{number}.parquet")


def run(spark, tmp, checkpoint="checkpoint", **options):
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp / "in"))
        .writeStream.format("tapewire")
        .options(**{"writer": "q", **options})
        .option("checkpointLocation", str(tmp / checkpoint))
        .trigger(availableNow=True)
        .start(str(tmp / "out"))
    )
    query.awaitTermination()
    return query


def seqs_of(path):
    return [entry.seq for entry in stored(path)]


def batches_of(tmp):
    return sorted(os.listdir(tmp / "out" / "_tapewire" / "batches" / "q"))


@pytest.fixture
def three_files(tmp):
    for number in range(3):
        put(tmp / "in", number, rows(range(number * 10, number * 10 + 10)))


def test_micro_batches_are_appended_in_order_and_each_has_its_manifest(spark, tmp, three_files):
    run(spark, tmp)
    assert seqs_of(tmp / "out" / LOG) == list(range(30))
    assert batches_of(tmp) == ["0.json", "1.json", "2.json"]
    assert os.listdir(tmp / "out" / "_tapewire" / "staging") == []


def test_a_query_resumes_where_it_stopped(spark, tmp, three_files):
    run(spark, tmp)
    put(tmp / "in", 3, rows(range(30, 33)))
    run(spark, tmp)
    assert seqs_of(tmp / "out" / LOG) == list(range(33))


def test_a_batch_that_spark_does_not_know_to_be_done_is_not_written_again(spark, tmp, three_files):
    run(spark, tmp)
    os.unlink(tmp / "checkpoint" / "commits" / "2")
    (tmp / "checkpoint" / "commits" / ".2.crc").unlink(missing_ok=True)
    run(spark, tmp)
    assert seqs_of(tmp / "out" / LOG) == list(range(30))


def test_a_new_checkpoint_under_an_old_name_is_refused_with_the_remedy(spark, tmp, three_files):
    run(spark, tmp)
    for number in range(3):
        os.unlink(tmp / "in" / f"{number}.parquet")
    put(tmp / "in", 9, rows(range(50, 60)))
    with pytest.raises(StreamingQueryException, match=r"BatchConflict.*a name of its own"):
        run(spark, tmp, "another")
    assert seqs_of(tmp / "out" / LOG) == list(range(30))
    run(spark, tmp, "third", writer="q2")
    assert seqs_of(tmp / "out" / LOG) == [*range(30), *range(50, 60)]


def test_a_query_without_a_name_is_refused(spark, tmp):
    put(tmp / "in", 0, rows([1]))
    with pytest.raises(PySparkException, match="a streaming query needs a writer name"):
        spark.readStream.schema(SCHEMA).parquet(str(tmp / "in")).writeStream.format(
            "tapewire"
        ).option("checkpointLocation", str(tmp / "c")).trigger(availableNow=True).start(
            str(tmp / "out")
        ).awaitTermination()
