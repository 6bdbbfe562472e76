"""``df.write.format("tapewire")``: rows into an archive, and back."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

import tapewire as tw
from tapewire import spark as tws
from tapewire.protocol import types_file
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.orders import CancelOrder
from tests.support.records import stored
from tests.support.staged import DAY_NS, LOG


@pytest.fixture(scope="module")
def numbers(spark):
    """``numbers(first, end, partitions)``: rows of two symbols with these numbers."""

    def make(first, end, partitions=2):
        return spark.range(first, end, 1, partitions).select(
            F.col("id").alias("seq"),
            (F.lit(DAY_NS) + F.col("id")).alias("timestamp_ns"),
            F.lit(7).alias("type_id"),
            F.lit(0x100).alias("flags"),
            F.encode(F.col("id").cast("string"), "utf-8").alias("payload"),
            F.lit("okx").alias("venue"),
            F.when(F.col("id") % 2 == 0, "BTC-USDT").otherwise("ETH-USDT").alias("symbol"),
            F.lit("book").alias("stream"),
        )

    return make


def save(df, path, mode="append", **options):
    df.write.format("tapewire").options(**options).mode(mode).save(str(path))


def seqs_of(path):
    return [entry.seq for entry in stored(path)]


def test_rows_become_logs_by_symbol_in_the_order_of_their_numbers(numbers, tmp):
    shuffled = numbers(0, 2000, 4).repartition(4, F.col("seq") % 7)
    save(shuffled, tmp)
    assert [(e.seq, e.timestamp_ns, e.type_id, e.flags, e.payload) for e in stored(tmp / LOG)] == [
        (n, DAY_NS + n, 7, 0x100, b"%d" % n) for n in range(0, 2000, 2)
    ]
    assert seqs_of(tmp / LOG.replace("BTC", "ETH")) == list(range(1, 2000, 2))


def test_what_was_written_is_what_the_source_reads(spark, numbers, tmp):
    written = numbers(0, 500, 3)
    save(written, tmp)
    read = spark.read.format("tapewire").load(str(tmp))
    columns = ["seq", "timestamp_ns", "type_id", "flags", "payload"]
    assert sorted(read.select(columns).collect()) == sorted(written.select(columns).collect())


def test_appending_continues_and_overwriting_replaces(numbers, tmp):
    save(numbers(0, 10), tmp)
    save(numbers(10, 20), tmp)
    assert seqs_of(tmp / LOG) == list(range(0, 20, 2))
    save(numbers(4, 6), tmp, "overwrite")
    assert seqs_of(tmp / LOG) == [4]


def test_rows_without_numbers_are_in_the_order_of_the_partitions(numbers, tmp):
    ordered = numbers(0, 1000, 1).drop("seq").orderBy(F.desc("timestamp_ns"))
    save(ordered, tmp, partitionBy="stream")
    found = stored(tmp / "v1/all/all/1970-01-02/book")
    assert [e.payload for e in found] == [b"%d" % n for n in reversed(range(1000))]
    assert [e.seq for e in found] == list(range(1000))


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_other_modes_are_refused(numbers, tmp, mode):
    with pytest.raises(AnalysisException, match='either the "Append" or "Overwrite" mode'):
        save(numbers(0, 1), tmp, mode)


def test_an_invalid_row_fails_the_write_by_name_and_leaves_nothing(numbers, tmp):
    wrong = numbers(0, 100).withColumn("symbol", F.when(F.col("seq") == 60, "..").otherwise("A"))
    with pytest.raises(PySparkException, match=r"not a valid symbol: symbol='..', row=10 of part"):
        save(wrong, tmp)
    assert not (tmp / "v1").exists()
    assert os.listdir(tmp / "_tapewire" / "staging") == []


def test_an_invalid_column_is_refused_before_any_task(numbers, tmp):
    with pytest.raises(PySparkException, match="the sink has no use for a column: column=mid"):
        save(numbers(0, 1).withColumn("mid", F.lit(1.5)), tmp)
    assert not (tmp / "_tapewire").exists()


def test_a_duplicated_number_fails_the_write_by_log_and_number(numbers, tmp):
    with pytest.raises(PySparkException, match=rf"seq=6, log={LOG}"):
        save(numbers(0, 10).union(numbers(6, 7)), tmp)
    assert not (tmp / "v1").exists()
    save(numbers(0, 10).union(numbers(6, 7)), tmp, duplicates="drop")
    assert seqs_of(tmp / LOG) == [0, 2, 4, 6, 8]


def test_a_log_with_an_active_writer_is_refused_with_its_pid(numbers, tmp):
    save(numbers(0, 2), tmp)
    with (
        tw.open_publisher(tmp / LOG),
        pytest.raises(PySparkException, match=rf"WriterAlreadyActive.*pid={os.getpid()}"),
    ):
        save(numbers(2, 4), tmp)
    save(numbers(2, 4), tmp)
    assert seqs_of(tmp / LOG) == [0, 2]


def test_a_task_that_fails_and_is_tried_again_writes_its_rows_once(spark, numbers, tmp):
    # With local[N] a task is tried once, so this runs two jobs with one name; the first one fails.
    marker = str(tmp / "failed")

    def fails_once(batches):
        yield from batches
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("lost")

    rows = numbers(0, 100)
    flaky = rows.mapInArrow(fails_once, rows.schema)
    with pytest.raises(PySparkException, match="lost"):
        save(flaky, tmp / "archive", writer="w", batch="1")
    for _ in range(2):
        save(flaky, tmp / "archive", writer="w", batch="1")
    assert seqs_of(tmp / "archive" / LOG) == list(range(0, 100, 2))


def test_a_thread_that_registers_writes(spark, numbers, tmp):
    def write():
        tws.register(spark)
        save(numbers(0, 4), tmp / "archive")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write).result()
    assert seqs_of(tmp / "archive" / LOG) == [0, 2]


def test_a_directory_that_is_not_an_archive_is_refused_before_any_task(numbers, tmp):
    tw.open_publisher(tmp / "md").close()
    with pytest.raises(AnalysisException, match="this is a log, not an archive"):
        save(numbers(0, 1), tmp / "md")


def test_messages_are_written_by_their_fields_with_their_layout(spark, tmp):
    rows = spark.range(3).select(
        (F.lit(DAY_NS) + F.col("id")).alias("timestamp_ns"),
        F.lit("alpha").alias("strategy"),
        F.lit("BTC-USDT").alias("symbol"),
        F.col("id").alias("client_order_id"),
        *(F.lit(0).alias(name) for name in ("source_seq", "sent_ns", "routed_ns")),
    )
    save(rows, tmp, type="CancelOrder", partitionBy="symbol", stream="orders")
    with tw.open_log(tmp / "v1/all/BTC-USDT/1970-01-02/orders") as log:
        found = [CancelOrder.decode(record) for record in log]
    assert [(m.symbol, m.client_order_id) for m in found] == [("BTC-USDT", n) for n in range(3)]
    assert [layout.name for layout in types_file.read(log.path)] == ["CancelOrder"]


def test_instruments_are_stored_next_to_the_logs(numbers, tmp):
    known = Instruments()
    known.add(Instrument.of("okx", "BTC-USDT", 2, 5))
    (tmp / "raw").mkdir()
    known.save(tmp / "raw")
    save(numbers(0, 2), tmp / "out", instruments=str(tmp / "raw"))
    assert [str(one) for one in Instruments.load(tmp / "out" / LOG)] == ["okx:BTC-USDT"]
