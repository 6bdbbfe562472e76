"""Logs to Parquet and back lose nothing; small files become larger ones, in order."""

import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire import bus, ingest
from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.book.gaps import Gap, GapLedger
from tapewire.config import WriterConfig
from tapewire.errors import ConcurrentUse, InvalidOption
from tapewire.protocol.instruments import Instruments
from tapewire.queue.status import find_queues, status
from tapewire.spark import jobs
from tests.support.captures import futures_lines, write_capture
from tests.support.marketdata import capture


def records(path):
    with tw.open_log(path) as log:
        return [(r.seq, r.timestamp_ns, r.type_id, r.flags, bytes(r.payload)) for r in log]


def tree(archive):
    """Everything in an archive that must be preserved."""
    found = {}
    for path in find_queues(archive):
        name = os.path.relpath(path, archive)
        seen = status(path)
        types = Path(path, "types.json")
        found[name] = (
            records(path),
            GapLedger(path).read(),
            (seen.sparse, seen.segment_bytes),
            types.read_bytes() if types.exists() else None,
        )
    return found, list(Instruments.load(archive))


@pytest.fixture
def archive(tmp_path):
    """An import with gaps and types, and a sparse, a short and an empty log."""
    root = tmp_path / "archive"
    write_capture(tmp_path / "capture", futures_lines(2_000, gap_at=1_000))
    ingest.run("binance-usdm", [tmp_path / "capture"], root)
    layout = bus.ArchiveLayout(root)
    config = WriterConfig.archive(segment_bytes=1 << 16, sparse=True)
    with tw.open_publisher(layout.log("v", "000001", "2024-01-02", "book"), config=config) as log:
        for seq in range(7, 3_000, 7):
            log.append(9, b"x" * (seq % 100), timestamp_ns=seq, flags=(seq % 256) << 8, seq=seq)
    GapLedger(layout.log("v", "000001", "2024-01-02", "book")).add(
        Gap("record", "", "", "book", 3, 5, seq=7, timestamp_ns=7)
    )
    config = WriterConfig.archive(segment_bytes=1 << 16, first_seq=40, checksum=False)
    with tw.open_publisher(layout.raw("v", "2024-01-02"), config=config) as log:
        log.append(1, b"", timestamp_ns=3)
        log.append(2, b"y", timestamp_ns=2)
    tw.open_publisher(layout.log("v", "E", "2024-01-02", "book"), segment_bytes=1 << 16).close()
    return root


def test_an_archive_goes_to_parquet_and_back_without_loss(spark, archive, tmp_path):
    out = jobs.compact(spark, archive, tmp_path / "parquet", target_bytes=40_000)
    back = jobs.compact(spark, tmp_path / "parquet", tmp_path / "again", to="archive")

    assert tree(tmp_path / "again") == tree(archive)
    assert out.rows == back.rows == sum(len(log[0]) for log in tree(archive)[0].values())
    assert out.clean
    assert back.clean


def test_spark_reads_the_files_with_names_that_stay_text(spark, archive, tmp_path):
    jobs.compact(spark, archive, tmp_path / "parquet")
    rows = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "parquet"))

    assert rows.count() == sum(len(log[0]) for log in tree(archive)[0].values())
    assert rows.where("symbol = '000001'").select("date").distinct().collect()[0][0] == "2024-01-02"
    assert rows.columns[:5] == ["seq", "timestamp_ns", "type_id", "flags", "payload"]


def test_a_log_is_written_again_only_if_it_has_grown(spark, archive, tmp_path):
    first = jobs.compact(spark, archive, tmp_path / "parquet")
    again = jobs.compact(spark, archive, tmp_path / "parquet")
    assert (again.done, again.skipped) == (0, first.done)

    raw = bus.ArchiveLayout(archive).raw("v", "2024-01-02")
    with tw.open_publisher(raw, config=WriterConfig.archive(checksum=False)) as log:
        log.append(3, b"more", timestamp_ns=9)
    grown = jobs.compact(spark, archive, tmp_path / "parquet")
    assert (grown.done, grown.rows) == (1, 3)
    jobs.compact(spark, tmp_path / "parquet", tmp_path / "again", to="archive")
    assert tree(tmp_path / "again") == tree(archive)


def test_a_removed_directory_is_written_again(spark, archive, tmp_path):
    jobs.compact(spark, archive, tmp_path / "parquet")
    removed = tmp_path / "parquet" / "v1" / "v" / "000001"
    shutil.rmtree(removed)
    again = jobs.compact(spark, archive, tmp_path / "parquet")
    assert again.done == 1
    assert list(removed.rglob("*.parquet"))


def test_a_damaged_log_is_reported_and_the_others_are_done(spark, archive, tmp_path):
    log = bus.ArchiveLayout(archive).log("v", "000001", "2024-01-02", "book")
    segment = sorted(log.glob("*.q"))[0]
    data = bytearray(segment.read_bytes())
    data[data.index(b"xxxxxxxx")] ^= 0xFF
    segment.write_bytes(data)
    summary = jobs.compact(spark, archive, tmp_path / "parquet")

    assert (summary.failed, summary.exit_code) == (1, 3)
    assert "000001" in summary.findings[0].part
    assert not (tmp_path / "parquet" / "v1" / "v" / "000001" / "2024-01-02" / "book").exists()
    assert (tmp_path / "parquet" / "v1" / "v" / "E").exists()


def small_files(directory, count=20):
    for place in ("date=2024-01-01/symbol=A", "date=2024-01-01/symbol=B"):
        (directory / place).mkdir(parents=True)
        for i in range(count):
            table = pa.table({"at": [i * 10 + j for j in range(10)], "text": ["x"] * 10})
            pq.write_table(table, directory / place / f"part-{i:05d}-abc.parquet")
        (directory / place / "_note").write_text("kept")


def test_small_files_become_one_in_the_same_order(spark, tmp_path):
    small_files(tmp_path / "small")
    before = {path: path.read_bytes() for path in (tmp_path / "small").rglob("*.parquet")}
    summary = jobs.compact(spark, tmp_path / "small", tmp_path / "large")

    for symbol in "AB":
        directory = tmp_path / "large" / "date=2024-01-01" / f"symbol={symbol}"
        (file,) = directory.glob("*.parquet")
        assert pq.read_table(file, partitioning=None)["at"].to_pylist() == list(range(200))
        assert (directory / "_note").read_text() == "kept"
    assert summary.counts == {"files_before": 40, "files_after": 2}
    assert {path: path.read_bytes() for path in before} == before


def test_files_have_about_the_target_size(spark, tmp_path):
    (tmp_path / "small" / "x").mkdir(parents=True)
    noise = random.Random(1)
    for i in range(8):
        table = pa.table({"noise": [noise.randbytes(100) for _ in range(1000)]})
        pq.write_table(table, tmp_path / "small" / "x" / f"{i}.parquet")
    jobs.compact(spark, tmp_path / "small", tmp_path / "large", target_bytes=250_000)

    sizes = [path.stat().st_size for path in sorted((tmp_path / "large" / "x").iterdir())]
    assert len(sizes) in (3, 4)
    assert all(size < 500_000 for size in sizes)


def test_the_source_itself_is_replaced_only_if_confirmed(spark, tmp_path):
    small_files(tmp_path / "small")
    with pytest.raises(InvalidOption, match="--yes"):
        jobs.compact(spark, tmp_path / "small", tmp_path / "small")
    summary = jobs.compact(spark, tmp_path / "small", tmp_path / "small", yes=True)

    directory = tmp_path / "small" / "date=2024-01-01" / "symbol=A"
    assert sorted(path.name for path in directory.iterdir()) == ["_note", "part-00000.parquet"]
    file = directory / "part-00000.parquet"
    assert pq.read_table(file, partitioning=None)["at"].to_pylist() == list(range(200))
    assert summary.counts["files_after"] == 2
    again = jobs.compact(spark, tmp_path / "small", tmp_path / "small", yes=True)
    assert again.counts == {"directories_unchanged": 2}


def test_files_with_other_columns_are_reported_and_not_changed(spark, tmp_path):
    small_files(tmp_path / "small")
    odd = tmp_path / "small" / "date=2024-01-01" / "symbol=A" / "part-00007-abc.parquet"
    pq.write_table(pa.table({"other": [1]}), odd)
    summary = jobs.compact(spark, tmp_path / "small", tmp_path / "small", yes=True)

    assert (summary.done, summary.failed) == (1, 1)
    assert summary.findings[0].where == str(odd)
    assert len(list(odd.parent.glob("*.parquet"))) == 20


def test_two_runs_with_the_same_target_are_refused(spark, archive, tmp_path):
    with (
        AtomicDirectories(tmp_path / "parquet", "compact").exclusive(),
        pytest.raises(ConcurrentUse, match="running"),
    ):
        jobs.compact(spark, archive, tmp_path / "parquet")


def test_a_real_capture_survives_both_ways(spark, tmp_path):
    file = capture("binance/usdm_btcusdt_20240718.gz")
    jobs.import_files(spark, file, tmp_path / "archive", format="binance-usdm")
    jobs.compact(spark, tmp_path / "archive", tmp_path / "parquet")
    jobs.compact(spark, tmp_path / "parquet", tmp_path / "again", to="archive")

    got, want = tree(tmp_path / "again"), tree(tmp_path / "archive")
    assert got == want
    assert sum(len(log[0]) for log in want[0].values()) > 10_000
