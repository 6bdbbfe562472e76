"""`tapewire export`: what the file contains, and that it is complete or absent."""

import csv
import json
import os
import signal
import subprocess
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.commands import tapewire

SECOND = 1_000_000_000
FIRST_NS = 1_700_000_000 * SECOND
NAMES = ["seq", "timestamp_ns", "type_id", "flags", "payload"]


def export(queue, to, *arguments):
    ran = tapewire("export", queue, "--to", to, "--json", *arguments)
    assert ran.code == 0, ran.err
    (summary,) = ran.json
    return summary


def rows_of(queue, **options):
    with tw.open_log(queue, **options) as log:
        return [(r.seq, r.timestamp_ns, r.type_id, r.flags, bytes(r.payload)) for r in log]


def seqs_in(path):
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()]


def seqs(queue, tmp, *arguments):
    export(queue, tmp / "part.jsonl", "--force", *arguments)
    return seqs_in(tmp / "part.jsonl")


def as_rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_text_goes_to_standard_output_if_no_file_is_given(queue, tmp):
    export(queue, tmp / "all.jsonl")
    for arguments in ((), ("--to", "-"), ("--format", "jsonl", "--json")):
        ran = tapewire("export", queue, *arguments)
        assert (ran.code, ran.out) == (0, (tmp / "all.jsonl").read_text())
    export(queue, tmp / "all.csv")
    assert tapewire("export", queue, "--format", "csv").out == (tmp / "all.csv").read_text()
    ran = tapewire("export", queue, "--format", "parquet")
    assert ran.code == 2
    assert "cannot write to standard output: format=parquet" in ran.err


def test_the_file_may_be_an_argument_or_an_option(queue, tmp):
    for arguments in ([tmp / "a.csv"], ["-o", tmp / "b.csv"], ["--output", tmp / "c.csv"]):
        assert tapewire("export", queue, *arguments).code == 0
        assert arguments[-1].read_text().startswith("seq,")
    assert tapewire("export", queue, tmp / "d.csv", "--to", tmp / "e.csv").code == 2


def test_parquet_has_every_record(queue, tmp):
    summary = export(queue, tmp / "all.parquet")
    table = pq.read_table(tmp / "all.parquet")
    assert table.column_names == NAMES
    assert as_rows(table) == rows_of(queue)
    assert summary | {"seconds": 0} == {
        "file": str(tmp / "all.parquet"),
        "format": "parquet",
        "records": 300,
        "payload_bytes": sum(len(b"order %d" % n) for n in range(300)),
        "file_bytes": (tmp / "all.parquet").stat().st_size,
        "first_seq": 0,
        "last_seq": 299,
        "damaged": [],
        "seconds": 0,
    }


def test_duckdb_reads_the_parquet(queue, tmp):
    export(queue, tmp / "all.parquet")
    found = duckdb.sql(
        f"select type_id, count(*), max(seq) from '{tmp / 'all.parquet'}' group by 1 order by 1"
    ).fetchall()
    assert found == [(0x3001, 100, 297), (0x3002, 100, 298), (0x3003, 100, 299)]


def test_arrow_ipc_has_every_record(queue, tmp):
    export(queue, tmp / "all.arrow")
    with pa.ipc.open_file(tmp / "all.arrow") as file:
        table = file.read_all()
    assert table.column_names == NAMES
    assert as_rows(table) == rows_of(queue)


def test_csv_has_every_record_with_payloads_in_hexadecimal(queue, tmp):
    export(queue, tmp / "all.csv")
    with (tmp / "all.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == NAMES
    assert [(*map(int, row[:4]), bytes.fromhex(row[4])) for row in rows] == rows_of(queue)


def test_jsonl_is_what_tail_prints(queue, tmp):
    export(queue, tmp / "all.jsonl")
    assert (tmp / "all.jsonl").read_text() == tapewire("tail", queue, "--from-seq", 0, "--json").out


def test_payloads_larger_than_a_row_group_are_exported_completely(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.cli.export.files._ROW_GROUP_BYTES", 1000)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        for n in range(50):
            writer.append(1, bytes([n]) * (n * 100))
    export(tmp / "q", tmp / "all.parquet")
    assert as_rows(pq.read_table(tmp / "all.parquet")) == rows_of(tmp / "q")
    assert pq.ParquetFile(tmp / "all.parquet").num_row_groups > 10


def test_an_empty_log_makes_an_empty_file_with_the_same_columns(tmp):
    tw.open_publisher(tmp / "q", segment_bytes=8192).close()
    for name in ("all.parquet", "all.csv", "all.jsonl", "all.arrow"):
        assert export(tmp / "q", tmp / name)["records"] == 0
    assert pq.read_table(tmp / "all.parquet").column_names == NAMES
    assert (tmp / "all.csv").read_text() == ",".join(NAMES) + "\n"
    assert (tmp / "all.jsonl").read_text() == ""


def test_the_format_can_be_given(queue, tmp):
    assert export(queue, tmp / "data", "--format", "csv")["format"] == "csv"
    assert (tmp / "data").read_text().startswith("seq,timestamp_ns,")


def test_a_range_of_sequence_numbers_includes_both_ends(queue, tmp):
    assert seqs(queue, tmp, "--from-seq", 10, "--to-seq", 12) == [10, 11, 12]
    assert seqs(queue, tmp, "--to-seq", 0) == [0]
    assert seqs(queue, tmp, "--from-seq", 298, "--to-seq", 9999) == [298, 299]


def test_adjacent_ranges_of_time_share_no_record_and_omit_none(queue, tmp):
    middle = str(FIRST_NS + 150 * SECOND)
    assert seqs(queue, tmp, "--to-time", middle) == list(range(150))
    assert seqs(queue, tmp, "--from-time", middle) == list(range(150, 300))
    assert seqs(queue, tmp, "--to-time", str(FIRST_NS)) == []
    assert seqs(queue, tmp, "--from-time", str(FIRST_NS + 298 * SECOND)) == [298, 299]


def test_a_range_of_sequence_numbers_is_exact_beyond_the_precision_of_floats(tmp):
    first = 2**60
    with tw.open_publisher(tmp / "q", segment_bytes=65536, sparse=True) as writer:
        for n in range(10):
            writer.append(1, b"x", seq=first + n)
    part = seqs(tmp / "q", tmp, "--from-seq", first + 2, "--to-seq", first + 5)
    assert part == [first + n for n in range(2, 6)]


def test_restarting_sequence_numbers_are_noticed_if_all_times_are_equal(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.cli.export.run._BATCH", 4)
    runs = [[qf.record(seq, b"x", timestamp_ns=7) for seq in range(n)] for n in (5, 2, 1)]
    qf.write_queue(tmp / "q", runs)
    assert seqs(tmp / "q", tmp) == [0, 1, 2, 3, 4, 0, 1, 0]


def test_only_the_given_types(queue, tmp):
    assert seqs(queue, tmp, "--type", "0x3002", "--to-seq", 10) == [1, 4, 7, 10]


def test_records_appended_meanwhile_are_not_exported(queue, tmp, monkeypatch):
    from tapewire.cli.export import run as command

    with tw.open_publisher(queue) as writer:

        def and_then_append(self, batch):
            writer.append(1, b"meanwhile")
            return counted(self, batch)

        counted = command.ExportDone.count
        monkeypatch.setattr(command.ExportDone, "count", and_then_append)
        monkeypatch.setattr(command, "_BATCH", 10)
        assert seqs(queue, tmp) == list(range(300))


def test_an_existing_file_is_kept_unless_forced(queue, tmp):
    (tmp / "all.csv").write_text("mine")
    ran = tapewire("export", queue, "--to", tmp / "all.csv")
    assert ran.code == 2
    assert "--force" in ran.err
    assert (tmp / "all.csv").read_text() == "mine"
    export(queue, tmp / "all.csv", "--force")
    assert (tmp / "all.csv").read_text() != "mine"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("elsewhere", path)])
def test_only_a_regular_file_is_replaced(queue, tmp, make):
    make(tmp / "all.csv")
    before = (tmp / "all.csv").lstat()
    ran = tapewire("export", queue, "--to", tmp / "all.csv", "--force")
    assert ran.code == 2
    assert "not a regular file" in ran.err
    assert (tmp / "all.csv").lstat() == before


def test_the_file_is_private_and_no_other_file_is_left(queue, tmp):
    export(queue, tmp / "all.csv")
    assert (tmp / "all.csv").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp)) == ["all.csv", "q"]


def test_a_file_left_by_a_killed_process_with_the_same_id_does_no_harm(queue, tmp):
    (tmp / f".part.jsonl.{os.getpid()}.tmp").write_text("half")
    assert len(seqs(queue, tmp)) == 300


def test_damage_ends_the_export_with_its_location_and_no_file(queue, tmp, spoil):
    spoil(queue, b"order 100")
    ran = tapewire("export", queue, "--to", tmp / "all.csv")
    assert ran.code == 3
    assert "000000" in ran.err
    assert "offset" in ran.err
    assert sorted(os.listdir(tmp)) == ["q"]


def test_damage_is_skipped_reported_and_counted_with_the_option(queue, tmp, spoil):
    spoil(queue, b"order 100")
    spoil(queue, b"order 200")
    ran = tapewire("export", queue, "--to", tmp / "all.jsonl", "--skip-damaged", "--json")
    assert ran.code == 0
    assert seqs_in(tmp / "all.jsonl") == [n for n in range(300) if n not in (100, 200)]
    assert ran.err.count("damaged:") == 2
    (summary,) = ran.json
    assert len(summary["damaged"]) == 2
    assert "record 100" in summary["damaged"][0]
    assert "record 200" in summary["damaged"][1]


@pytest.mark.parametrize("arguments", [[], ["--from-seq", 70], ["--from-seq", 1, "--to-seq", 250]])
def test_a_missing_segment_is_skipped_with_the_option(queue, tmp, arguments, remove_segment):
    expected = seqs(queue, tmp, *arguments)
    lost = remove_segment(queue, 1)
    assert tapewire("export", queue, "--to", tmp / "x.csv", *arguments).code == 3
    left = seqs(queue, tmp, "--skip-damaged", *arguments)
    assert left == [n for n in expected if n not in lost]


def test_a_damaged_first_record_is_skipped_with_the_option(queue, tmp, spoil):
    spoil(queue, (b"order 0" + bytes(9)))
    middle = str(FIRST_NS + 3 * SECOND)
    assert seqs(queue, tmp, "--skip-damaged", "--to-time", middle) == [1, 2]


@pytest.mark.parametrize("name", ["all.parquet", "all.arrow"])
def test_without_pyarrow_the_extra_is_named(queue, tmp, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = tapewire("export", queue, "--to", tmp / name)
    assert ran.code == 2
    assert "pip install 'tapewire[arrow]'" in ran.err
    export(queue, tmp / "all.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "x.txt"], "unknown file extension: x.txt"),
        (["--to", "x.csv", "--format", "xml"], "unknown format: format=xml"),
        (["--to", "x.csv", "--from-seq", "1", "--from-time", "-1s"], "not both"),
        (["--to", "x.csv", "--to-seq", "1", "--to-time", "-1s"], "not both"),
        (["--to", "no/such/directory/x.csv"], "no/such/directory"),
    ],
)
def test_usage_errors_are_reported(queue, arguments, message):
    ran = tapewire("export", queue, *arguments)
    assert ran.code in (2, 4)
    assert message in ran.err


# Sends itself a signal in the middle, when the temporary file has some records.
INTERRUPTED = """
import os, sys
from tapewire.cli.export import run as command
from tapewire.cli.app import main

directory, signum, *sys.argv[1:] = sys.argv[1:]
counted = command.ExportDone.count
def count(self, batch):
    counted(self, batch)
    if self.records == 20:
        print(os.listdir(directory), flush=True)
        os.kill(os.getpid(), int(signum))
command.ExportDone.count = count
command._BATCH = 10
main()
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["all.parquet", "all.csv"])
def test_an_interrupted_export_leaves_nothing(queue, tmp, signum, name):
    (tmp / "out").mkdir()
    command = ["export", queue, "--to", tmp / "out" / name]
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, tmp / "out", str(int(signum)), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 128 + signum, ran.stderr
    assert ".tmp" in ran.stdout  # the temporary file existed
    assert os.listdir(tmp / "out") == []
    assert ran.stderr == ""
