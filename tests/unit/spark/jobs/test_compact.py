"""What `compact` replaces, and what it refuses to replace."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire.config import WriterConfig
from tapewire.errors import InvalidOption, WriterAlreadyActive
from tapewire.scan.logs import resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.slices import plan
from tapewire.spark.jobs.compact import _Rewrite, _states, _ToLog, _ToParquet
from tapewire.spark.jobs.parts import JobPart
from tests.support.parquet_rows import write_rows

PLACE = "v1/okx/A/1970-01-01/book"


def seqs_of(log):
    with tw.open_log(log) as reader:
        return [record.seq for record in reader]


def to_log(source, target, yes=False):
    return _ToLog(target, yes)(JobPart("p", (), (str(source), PLACE)))


def test_a_log_is_replaced_by_one_that_has_all_of_it(tmp):
    to_log(write_rows(tmp / "few"), tmp / "archive")
    to_log(write_rows(tmp / "more", range(5)), tmp / "archive")
    assert seqs_of(tmp / "archive" / PLACE) == list(range(5))


def test_a_log_that_has_more_is_replaced_only_if_confirmed(tmp):
    to_log(write_rows(tmp / "few"), tmp / "archive")
    with tw.open_publisher(tmp / "archive" / PLACE, config=WriterConfig.archive()) as writer:
        writer.append(7, b"later", timestamp_ns=9, seq=9)
    with pytest.raises(InvalidOption, match="--yes"):
        to_log(tmp / "few", tmp / "archive")
    assert seqs_of(tmp / "archive" / PLACE) == [1, 2, 9]
    to_log(tmp / "few", tmp / "archive", yes=True)
    assert seqs_of(tmp / "archive" / PLACE) == [1, 2]


def test_a_log_with_an_active_writer_is_not_replaced(tmp):
    to_log(write_rows(tmp / "few"), tmp / "archive")
    with (
        tw.open_publisher(tmp / "archive" / PLACE, config=WriterConfig.archive()),
        pytest.raises(WriterAlreadyActive),
    ):
        to_log(tmp / "few", tmp / "archive", yes=True)
    assert os.listdir(tmp / "archive" / "_tapewire" / "compact") == []


def to_parquet(source, target, yes=False):
    (log,) = resolve(str(source), ReadOptions())
    (part,) = plan([log], ReadOptions(partitions=1), 1)
    return _ToParquet(target, yes, 1 << 20, "zstd")(JobPart("p", (), (log, part, PLACE)))


def test_rows_whose_records_were_retired_are_not_replaced(tmp):
    config = WriterConfig.archive(sparse=True, segment_bytes=1 << 16)
    for name, seqs in (("complete", range(9)), ("retired", range(4, 12))):
        with tw.open_publisher(tmp / name, config=config) as writer:
            for seq in seqs:
                writer.append(7, b"x", timestamp_ns=seq, seq=seq)
    to_parquet(tmp / "complete", tmp / "out")
    with pytest.raises(InvalidOption, match="content that the source lacks"):
        to_parquet(tmp / "retired", tmp / "out")
    table = pq.read_table(tmp / "out" / PLACE, partitioning=None)
    assert table["seq"].to_pylist() == list(range(9))


def test_files_of_others_are_not_replaced(tmp):
    place = tmp / "out" / PLACE
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("mine")
    with tw.open_publisher(tmp / "log", segment_bytes=1 << 16) as writer:
        writer.append(7, b"x", timestamp_ns=1)
    with pytest.raises(InvalidOption, match="content that the source lacks"):
        to_parquet(tmp / "log", tmp / "out")
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("yes", [False, True])
def test_a_log_is_never_replaced_by_its_own_files(tmp, yes):
    with tw.open_publisher(tmp / PLACE, segment_bytes=1 << 16) as writer:
        writer.append(7, b"x", timestamp_ns=1)
    with pytest.raises(InvalidOption, match="another target"):
        to_parquet(tmp / PLACE, tmp, yes)
    assert seqs_of(tmp / PLACE) == [0]


def rewrite(source, target):
    part = JobPart("p", tuple(_states(source)), (str(source), "x"))
    return _Rewrite(target, False, 1 << 20, "zstd")(part)


def test_files_next_to_the_rows_are_copied_to_another_filesystem(tmp, tmp_path):
    for i in range(2):
        (tmp / "x" / "below").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [i]}), tmp / "x" / f"{i}.parquet")
    (tmp / "x" / "_note").write_text("kept")
    rewrite(tmp / "x", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out" / "x")) == ["_note", "part-00000.parquet"]
    rewrite(tmp / "x", tmp_path / "out")  # its own files may be replaced
    pq.write_table(pa.table({"n": [1]}), tmp_path / "out" / "x" / "other.parquet")
    with pytest.raises(InvalidOption, match="--yes"):
        rewrite(tmp / "x", tmp_path / "out")
