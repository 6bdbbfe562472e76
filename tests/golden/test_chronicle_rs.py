"""Queues that chronicle-rs wrote, compared with the records that its own reader returned."""

import base64
import bisect
import functools
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest

import tapewire as tw
from tapewire import _native
from tests.support import queue_format as qf

HERE = Path(__file__).parent / "queue"
NAMES = ["basic", "dense", "restart", "torn"]
EXPECTED = {"basic": 1200, "dense": 14_400, "restart": 600, "torn": 225}


class Row(NamedTuple):
    segment: int
    seq: int
    timestamp_ns: int
    type_id: int
    payload: bytes


@functools.cache
def manifest(name):
    with gzip.open(HERE / f"{name}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == EXPECTED[name]
    return [Row(**{**row, "payload": base64.b64decode(row["payload"])}) for row in rows]


def unpack(name, into):
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / name


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def queue(name, tmp):
    return unpack(name, tmp)


def drain(reader):
    """Every record from here on, with the segment it came from."""
    rows = []
    while (r := reader.next()) is not None:
        segment = reader.position.segment
        rows.append(Row(segment, r.seq, r.timestamp_ns, r.type_id, bytes(r.payload)))
    return rows


def fingerprint(directory):
    """Names, contents, modes and times of all files of a directory."""
    found = {}
    for path in sorted([directory, *directory.rglob("*")]):
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path)] = (digest, stat.st_mode, stat.st_size, stat.st_mtime_ns)
    return found


def test_next_gives_every_record_as_it_was_written(name, queue):
    with tw.open_log(queue) as reader:
        assert drain(reader) == manifest(name)
        assert reader.next() is None
        assert reader.wait(0) is False


def test_the_portable_checksums_accept_the_same_records(name, queue):
    assert _native.select_checksum("portable")
    try:
        with tw.open_log(queue) as reader:
            assert drain(reader) == manifest(name)
    finally:
        _native.select_checksum("automatic")


@pytest.mark.parametrize("size", [1, 7, 1000, 65536])
def test_read_batch_gives_every_record_as_it_was_written(name, queue, size):
    rows = manifest(name)
    at = 0
    with tw.open_log(queue) as reader:
        while len(batch := reader.read_batch(size)):
            part = rows[at : at + len(batch)]
            assert batch.seq.tolist() == [row.seq for row in part]
            assert batch.timestamp_ns.tolist() == [row.timestamp_ns for row in part]
            assert batch.type_id.tolist() == [row.type_id for row in part]
            assert not batch.flags.any()
            assert [bytes(batch.payload(i)) for i in range(len(batch))] == [r.payload for r in part]
            assert reader.position.segment == part[-1].segment
            at += len(batch)
    assert at == len(rows)


def test_a_named_reader_gives_every_record_as_it_was_written(name, queue):
    with tw.open_subscriber(queue, "new") as reader:
        assert drain(reader) == manifest(name)


def test_iteration_with_a_type_filter_gives_exactly_those_types(name, queue):
    rows = manifest(name)
    wanted = {rows[0].type_id}
    with tw.open_log(queue, types=wanted) as reader:
        assert drain(reader) == [row for row in rows if row.type_id in wanted]


def test_the_independent_parser_finds_the_same_records(name, queue):
    found = [
        Row(segment, r.seq, r.timestamp_ns, r.type_id, r.payload)
        for segment, r in qf.stored_records(queue)
    ]
    assert found == manifest(name)


def test_kind_of_calls_it_a_queue(queue):
    assert tw.kind_of(queue) == "queue"


@pytest.mark.parametrize(
    ("reader_name", "segment", "offset"), [("alpha", 1, 51072), ("beta", 0, 64)]
)
def test_a_reader_resumes_where_it_had_committed(tmp, reader_name, segment, offset):
    queue = unpack("basic", tmp)
    stored = qf.stored_records(queue)
    first = next(i for i, (s, r) in enumerate(stored) if (s, r.offset) >= (segment, offset))
    with tw.open_subscriber(queue, reader_name) as reader:
        assert reader.position == (segment, offset)
        assert reader.committed == (segment, offset)
        assert drain(reader) == manifest("basic")[first:]


def test_reader_files_hold_what_the_readme_says(tmp):
    readers = unpack("basic", tmp) / "readers"
    alpha = qf.parse_reader_meta((readers / "alpha.meta").read_bytes())
    beta = (readers / "beta.meta").read_bytes()
    assert (alpha["segment_id"], alpha["offset"], alpha["generation"]) == (1, 51072, 5)
    assert qf.parse_reader_meta(beta)["generation"] == 1
    assert beta[:40] == bytes(40)


def test_a_resumed_reader_continues_in_its_file(tmp):
    queue = unpack("basic", tmp)
    with tw.open_subscriber(queue, "alpha") as reader:
        reader.next()
        reader.commit()
        position = reader.position
    slot = qf.parse_reader_meta((queue / "readers" / "alpha.meta").read_bytes())
    assert slot["generation"] > 5
    assert (slot["segment_id"], slot["offset"]) == position
    assert slot["flags"] == 0


def newest_run(rows):
    """Index of the first record after the last restart of the sequence."""
    return max((i for i in range(1, len(rows)) if rows[i].seq <= rows[i - 1].seq), default=0)


def test_seek_seq_looks_in_the_newest_run(name, queue):
    rows = manifest(name)
    begin = newest_run(rows)
    top = rows[-1].seq
    with tw.open_log(queue) as reader:
        for wanted in {0, 1, 2, 73, top // 2, top - 1, top, *range(0, top, max(1, top // 60))}:
            index = next(i for i in range(begin, len(rows)) if rows[i].seq >= wanted)
            assert reader.seek_seq(wanted) is True
            record = reader.next()
            assert (reader.position.segment, record.seq) == rows[index][:2]
            assert record.timestamp_ns == rows[index].timestamp_ns
        assert drain(reader) == rows[index + 1 :]


def test_seek_seq_beyond_the_newest_run_stands_at_the_end(name, queue):
    rows = manifest(name)
    with tw.open_log(queue) as reader:
        # In `restart` and `torn`, this sequence number exists, but in an earlier session.
        for wanted in (rows[-1].seq + 1, 2**63):
            assert reader.seek_seq(wanted) is False
            assert reader.next() is None


def test_seek_time_finds_the_first_record_where_the_tape_had_reached_it(name, queue):
    rows = manifest(name)
    reached = list(accumulate((row.timestamp_ns for row in rows), max))
    step = max(1, len(rows) // 120)
    times = {0, reached[0] - 1, reached[-1], reached[-1] + 1}
    times |= {t + d for t in reached[::step] for d in (-1, 0, 1)}
    with tw.open_log(queue) as reader:
        for t in sorted(times):
            index = bisect.bisect_left(reached, t)
            assert reader.seek_time(t) is (index < len(rows))
            record = reader.next()
            if index == len(rows):
                assert record is None
            else:
                assert (reader.position.segment, record.seq) == rows[index][:2], t


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_latest_is_after_the_last_record_and_earliest_before_the_first(name, queue, start):
    with tw.open_subscriber(queue, "new", start=start) as reader:
        assert drain(reader) == (manifest(name) if start == "earliest" else [])


def test_index_files_parse_and_point_at_records(name, queue):
    seen = 0
    stored = qf.stored_records(queue)
    for path in queue.glob("*.idx"):
        header, entries = qf.parse_index(path.read_bytes())
        segment = int(path.stem)
        records = {r.offset: r for s, r in stored if s == segment}
        assert header["segment_id"] == segment
        assert header["segment_size"] == qf.segment_path(queue, segment).stat().st_size
        assert header["data_offset"] == 64
        assert header["entry_stride"] == 4096
        assert (
            not header["flags"] & 2
        )  # the index has plain times, so a seek may only use min and max
        assert bool(header["flags"] & 1) == (name == "restart")
        for entry in entries:
            at = records[entry["offset"]]
            assert (at.seq, at.timestamp_ns) == (entry["seq"], entry["timestamp_ns"])
        if name == "dense":
            assert len(entries) == 2
        if not header["flags"] & 1:
            assert header["min_seq"] == min(r.seq for r in records.values())
            assert header["max_seq"] == max(r.seq for r in records.values())
        seen += 1
    assert seen == {"basic": 4, "dense": 2, "restart": 2, "torn": 1}[name]


READ_ONLY_CHILD = """
import os, sys
import tapewire as tw
with tw.open_log(sys.argv[1]) as warm:      # whatever is imported late is imported now
    warm.read_batch(1)
if os.geteuid() == 0:
    os.setegid(65534); os.seteuid(65534)    # root may write anywhere: become a user who may not
try:
    open(os.path.join(sys.argv[1], "control.meta"), "r+b")
except PermissionError:
    pass
else:
    sys.exit("the copy is writable after all")
with tw.open_log(sys.argv[1]) as reader:
    n = sum(1 for _ in reader)
    assert reader.wait(0.01) is False
    assert reader.seek_start() and reader.next() is not None
    print(n)
"""


def test_a_read_only_copy_is_read_and_nothing_in_it_changes(name, queue):
    queue.parent.chmod(0o755)
    directories = [queue, *[p for p in queue.rglob("*") if p.is_dir()]]
    for path in [p for p in queue.rglob("*") if p.is_file()]:
        path.chmod(0o444)
    for path in directories:
        path.chmod(0o555)
    try:
        before = fingerprint(queue)
        child = subprocess.run(
            [sys.executable, "-c", READ_ONLY_CHILD, str(queue)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        assert int(child.stdout) == EXPECTED[name]
        assert fingerprint(queue) == before
    finally:
        for path in directories:
            path.chmod(0o755)


def test_open_log_changes_nothing_in_a_writable_copy_either(name, queue):
    before = fingerprint(queue)
    with tw.open_log(queue) as reader:
        assert len(drain(reader)) == EXPECTED[name]
        reader.wait(0)
        reader.seek_seq(10)
        reader.seek_time(manifest(name)[5].timestamp_ns)
        reader.seek_end()
    assert {k: v[:3] for k, v in fingerprint(queue).items()} == {
        k: v[:3] for k, v in before.items()
    }


def test_a_writer_continues_after_the_last_seq(name, queue):
    rows = manifest(name)
    last = rows[-1].seq
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == last + 1
        assert writer.append(0x2001, b"first of Tapewire", timestamp_ns=2 * 10**18) == last + 1
        assert list(writer.append_batch(0x2001, [b"x" * n for n in range(700)])) == list(
            range(last + 2, last + 702)
        )
        assert writer.metrics()["damaged_spans"] == 0
        assert writer.metrics()["gaps_found"] == 0
    with tw.open_log(queue) as reader:
        found = drain(reader)
    assert found[: len(rows)] == rows
    added = found[len(rows) :]
    assert [row.seq for row in added] == list(range(last + 1, last + 702))
    assert added[0].payload == b"first of Tapewire"
    assert [row.payload for row in added[1:]] == [b"x" * n for n in range(700)]


def test_a_writer_leaves_the_bytes_of_the_records_before_it_alone(name, queue):
    def bytes_of_records():
        files = {n: qf.segment_path(queue, n).read_bytes() for n in qf.segment_ids(queue)}
        return [files[segment][r.offset : r.end] for segment, r in qf.stored_records(queue)]

    before = bytes_of_records()
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"more")
    assert bytes_of_records()[: len(before)] == before


def test_a_writer_raises_the_epoch_and_keeps_the_segment_size(name, queue):
    before = qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())
    with tw.open_publisher(queue) as writer:
        assert writer.epoch == before["writer_epoch"] + 1
        assert writer.segment_bytes == before["segment_size"]
    assert before["writer_epoch"] == {"basic": 1, "dense": 1, "restart": 3, "torn": 2}[name]


def test_seeks_find_the_same_records_after_a_writer_has_been_there(name, queue):
    rows = manifest(name)
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"more", timestamp_ns=rows[-1].timestamp_ns + 10)
    reached = list(accumulate((row.timestamp_ns for row in rows), max))
    with tw.open_log(queue) as reader:
        for t in reached[:: len(rows) // 40]:
            assert reader.seek_time(t)
            assert reader.next().timestamp_ns == rows[bisect.bisect_left(reached, t)].timestamp_ns
        assert reader.seek_seq(rows[-1].seq + 1)
        assert bytes(reader.next().payload) == b"more"
        assert reader.seek_seq(rows[-1].seq)
        assert reader.next().timestamp_ns == rows[-1].timestamp_ns


def test_the_pad_of_torn_is_there_and_is_skipped(tmp):
    queue = unpack("torn", tmp)
    header, records = qf.parse_segment(qf.segment_path(queue, 0))
    pads = [r for r in records if r.is_pad]
    assert header["flags"] & qf.SEALED
    assert [(p.offset, p.seq, p.timestamp_ns, len(p.payload)) for p in pads] == [
        (27968, 0, 0, 4736)
    ]
    with tw.open_log(queue) as reader:
        reader.seek_time(manifest("torn")[149].timestamp_ns)
        assert reader.next().seq == 149
        assert reader.position == (0, 27968)
        following = reader.next()
        assert (following.seq, reader.position.segment) == (0, 1)


def test_a_segment_of_dense_is_filled_to_its_last_byte(tmp):
    queue = unpack("dense", tmp)
    _, records = qf.parse_segment(qf.segment_path(queue, 0))
    assert records[-1].end == os.path.getsize(qf.segment_path(queue, 0))
    with tw.open_log(queue) as reader:
        assert reader.seek_seq(records[-1].seq)
        assert reader.next().seq == records[-1].seq
        assert reader.next().seq == records[-1].seq + 1
