"""Damaged records: reported, never shown, never waited for.

Each bit of a record's header is flipped in the file of a queue that is otherwise valid. A reader
must raise a typed error or return the original record, and continue after it on request.
"""

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import tapewire as tw
from tests.support import queue_format as qf

SEGMENT_BYTES = 8192
SIZES = (0, 63, 64)
HEADER_BITS = range(512)
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for the fixtures of a module
PLACES = ("sealed", "active", "live")  # active: its writer is closed; live: it is open


def key(record):
    return (
        record.seq,
        record.timestamp_ns,
        record.type_id,
        record.flags,
        bytes(record.payload),
    )


def build(directory, **options):
    """A queue whose sealed segment 0 and active segment 1 hold the same sizes; its open writer.

    Each segment: a first record, one of each of SIZES, and at least one after them.
    """
    writer = tw.open_publisher(
        directory, segment_bytes=SEGMENT_BYTES, preallocate=False, **{"index_stride": 2, **options}
    )
    for segment in (0, 1):
        for n, size in enumerate((5, *SIZES, 17, 0, 100)):
            # Some times decrease: a seek by time must not rely on their order.
            time = 10**18 + 1000 * segment + 10 * n - (15 if n == 5 else 0)
            writer.append(0x1001 + n, bytes(range(size)), timestamp_ns=time, flags=0x0100 * n)
        if segment == 0:
            writer.append(7, bytes(7000), timestamp_ns=10**18 + 500)
            assert qf.segment_ids(directory) == [0]
            writer.append(8, bytes(1000), timestamp_ns=10**18 + 600)
    return writer


class Tape:
    """The queue under test, its records, and the bytes of one segment to change."""

    def __init__(self, directory, writer, place):
        self.directory = directory
        self.segment = 0 if place == "sealed" else 1
        if place != "live":
            writer.close()
        self.stored = qf.stored_records(directory)
        self.records = [
            (r.seq, r.timestamp_ns, r.type_id, r.flags, r.payload) for _, r in self.stored
        ]
        with open(qf.segment_path(directory, self.segment), "r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)

    def close(self):
        self.bytes.close()

    def index_of(self, size):
        """The index of the record of this size that is neither first nor last of the segment."""
        of_segment = [i for i, (s, _) in enumerate(self.stored) if s == self.segment]
        return next(i for i in of_segment[1:-1] if len(self.stored[i][1].payload) == size)

    def first(self):
        return next(i for i, (s, _) in enumerate(self.stored) if s == self.segment)

    def last(self):
        return max(i for i, (s, _) in enumerate(self.stored) if s == self.segment)

    def end(self):
        return self.stored[self.last()][1].end

    def flip(self, offset, bit):
        self.bytes[offset + bit // 8] ^= 1 << bit % 8


@pytest.fixture(scope="module", params=PLACES)
def tape(request):
    with tempfile.TemporaryDirectory(prefix="tapewire-test-", dir=SCRATCH) as directory:
        queue = Path(directory) / "q"
        writer = build(queue)
        tape = Tape(queue, writer, request.param)
        tape.place = request.param
        yield tape
        tape.close()
        writer.close()


def by_next(reader):
    while (record := reader.next()) is not None:
        yield key(record)


def by_batch(reader):
    while len(batch := reader.read_batch(4)):
        yield from (key(record) for record in batch)


def read(reader, how=by_next):
    """``(records, error)``: the records read, and the error, or None at the end of the log."""
    records = []
    try:
        records.extend(how(reader))  # keeps what came before an error
        # The commit word itself may be lost: then wait() reports the damage.
        assert reader.wait(0) is False
    except tw.TapewireError as error:
        return records, error
    return records, None


def assert_damage(error, tape, index):
    record = tape.stored[index][1]
    assert type(error) in (tw.CorruptRecord, tw.ChecksumMismatch), repr(error)
    assert error.path == str(qf.segment_path(tape.directory, tape.segment))
    assert error.offset == record.offset
    assert error.path in str(error)
    assert f"offset {record.offset}" in str(error)
    assert "skip_damaged" in error.hint


def check_flip(tape, index, bit, how):
    """Check what `next`, `wait` and `skip_damaged` promise; True if the flip was reported."""
    expected = tape.records
    target = tape.stored[index][1]
    with tw.open_log(tape.directory) as reader:
        got, error = read(reader, how)
        if error is None:
            assert got == expected, f"bit {bit}"
            return False
        assert got == expected[:index], f"bit {bit}"
        assert_damage(error, tape, index)
        assert reader.position == (tape.segment, target.offset)

        # It is raised each time until it is skipped.
        again, error = read(reader, how)
        assert again == []
        assert_damage(error, tape, index)
        with pytest.raises(tw.CorruptRecord):
            reader.wait(0)

        skipped = reader.skip_damaged()
        if index == tape.last() and tape.segment == 1:
            # Nothing valid follows it. While a writer lives, more may come: the reader stays until
            # then. A writer that closed the log recorded its end.
            lost = (target.end - target.offset, target.seq, target.seq)
            assert skipped[2:] == ((0, None, None) if tape.place == "live" else lost)
            return True
        assert skipped == (
            tape.segment,
            target.offset,
            record_span(tape, index),
            target.seq,
            target.seq,
        ), f"bit {bit}"
        rest, error = read(reader, how)
        assert error is None
        assert rest == expected[index + 1 :], f"bit {bit}"
        assert reader.skip_damaged().bytes == 0
    return True


def record_span(tape, index):
    return tape.stored[index][1].end - tape.stored[index][1].offset


TARGETS = {
    "empty": lambda tape: tape.index_of(0),
    "63 bytes": lambda tape: tape.index_of(63),
    "64 bytes": lambda tape: tape.index_of(64),
    "first of the segment": Tape.first,
    "last of the segment": Tape.last,
}


def flip_each_bit(tape, index, how):
    """Flip every bit of the header in turn; return those that were reported."""
    offset = tape.stored[index][1].offset
    reported = set()
    for bit in HEADER_BITS:
        tape.flip(offset, bit)
        try:
            if check_flip(tape, index, bit, how):
                reported.add(bit)
        finally:
            tape.flip(offset, bit)
    return reported


# Bytes 0 to 35 have a meaning and are checked; the rest is zero and has none.
CHECKED_BITS = set(range(36 * 8))


@pytest.mark.parametrize("target", TARGETS)
def test_next_reports_each_flipped_bit_of_a_header_or_returns_the_original(tape, target):
    index = TARGETS[target](tape)
    if target == "last of the segment" and tape.segment == 0:
        index -= 1  # after the last of a sealed segment there is no record to continue with
    assert flip_each_bit(tape, index, by_next) == CHECKED_BITS


@pytest.mark.parametrize("size", SIZES)
def test_read_batch_reports_each_flipped_bit_of_a_header_or_returns_the_original(tape, size):
    assert flip_each_bit(tape, tape.index_of(size), by_batch) == CHECKED_BITS


def test_the_last_record_of_a_sealed_segment_is_skipped_into_the_next_segment(tmp):
    with build(tmp / "q") as writer:
        pass
    tape = Tape(tmp / "q", writer, "sealed")
    index = tape.last()
    target = tape.stored[index][1]
    for bit in range(36 * 8):
        tape.flip(target.offset, bit)
        try:
            with tw.open_log(tape.directory) as reader:
                got, error = read(reader)
                assert got == tape.records[:index]
                assert_damage(error, tape, index)
                skipped = reader.skip_damaged()
                # To the recorded end of the segment, and from there into the next.
                assert skipped[:3] == (0, target.offset, target.end - target.offset)
                rest, error = read(reader)
                if isinstance(error, tw.GapDetected):
                    assert (error.first, error.last) == (target.seq, target.seq)
                    more, error = read(reader)
                    rest += more
                assert error is None
                assert rest == tape.records[index + 1 :]
        finally:
            tape.flip(target.offset, bit)
    tape.close()


def test_no_flipped_bit_after_the_last_record_shows_a_record(tape):
    at = tape.end()
    for bit in HEADER_BITS:
        tape.flip(at, bit)
        try:
            with tw.open_log(tape.directory) as reader:
                got, error = read(reader)
                if error is not None:
                    assert type(error) is tw.CorruptRecord
                    assert error.offset == at
                    assert got == tape.records[: tape.last() + 1]
                    reader.skip_damaged()
                    more, _ = read(reader)
                    got += more
                assert got == tape.records, f"bit {bit}"
                # In a sealed segment a record was begun there and is lost: that is reported.
                if tape.place == "sealed":
                    assert error is not None, f"bit {bit}"
        finally:
            tape.flip(at, bit)


def position_after(reader, records):
    for _ in range(records):
        reader.next()


@pytest.mark.parametrize("target", TARGETS)
def test_a_seek_to_a_damaged_record_stops_before_it(tape, target):
    index = TARGETS[target](tape)
    if target == "last of the segment" and tape.segment == 0:
        index -= 1
    record = tape.stored[index][1]
    reached = max(r[1] for r in tape.records[: index + 1])
    rising = record.timestamp_ns == reached  # otherwise an earlier record is the first at that time
    with tw.open_log(tape.directory) as reader:
        for bit in range(36 * 8):
            tape.flip(record.offset, bit)
            try:
                reader.seek_seq(record.seq)
                got, error = read(reader)
                assert got == [], f"seek_seq, bit {bit}"
                assert_damage(error, tape, index)
                if rising:
                    reader.seek_time(record.timestamp_ns)
                    got, error = read(reader)
                    assert got == [], f"seek_time, bit {bit}"
                    assert_damage(error, tape, index)
            finally:
                tape.flip(record.offset, bit)


@pytest.mark.parametrize("target", TARGETS)
def test_a_seek_past_a_damaged_record_finds_what_it_would_without(tape, target):
    index = TARGETS[target](tape)
    if target == "last of the segment" and tape.segment == 1:
        index -= 1  # there must be a later record
    record = tape.stored[index][1]
    following = tape.records[index + 1]
    with tw.open_log(tape.directory) as reader:
        for bit in HEADER_BITS:
            tape.flip(record.offset, bit)
            try:
                assert reader.seek_seq(following[0]) is True, f"bit {bit}"
                assert key(reader.next()) == following, f"bit {bit}"
                reader.seek_end()
                assert reader.next() is None
                assert reader.wait(0) is False
            finally:
                tape.flip(record.offset, bit)


@pytest.mark.parametrize("size", [63, 64])
def test_a_flipped_bit_of_a_payload_is_a_checksum_mismatch(tape, size):
    index = tape.index_of(size)
    record = tape.stored[index][1]
    for bit in range(0, size * 8, 3):
        tape.flip(record.offset + 64, bit)
        try:
            with tw.open_log(tape.directory) as reader:
                got, error = read(reader)
                assert got == tape.records[:index]
                assert type(error) is tw.ChecksumMismatch
                assert_damage(error, tape, index)
                assert f"seq={record.seq}" in str(error)
                assert reader.skip_damaged()[3:] == (record.seq, record.seq)
                assert read(reader) == (tape.records[index + 1 :], None)
        finally:
            tape.flip(record.offset + 64, bit)


def test_a_flipped_byte_of_the_padding_after_a_payload_is_harmless(tape):
    record = tape.stored[tape.index_of(63)][1]
    tape.flip(record.offset + 64 + 63, 3)
    try:
        with tw.open_log(tape.directory) as reader:
            assert read(reader) == (tape.records, None)
    finally:
        tape.flip(record.offset + 64 + 63, 3)


def test_a_filter_does_not_hide_damaged_headers(tape):
    index = tape.index_of(63)
    record = tape.stored[index][1]
    for bit in range(36 * 8):
        tape.flip(record.offset, bit)
        try:
            with tw.open_log(tape.directory, types={tape.records[0][2]}) as reader:
                _, error = read(reader)
                assert_damage(error, tape, index)
        finally:
            tape.flip(record.offset, bit)


def test_a_named_reader_raises_and_commits_past_what_it_skipped(tape):
    index = tape.index_of(64)
    record = tape.stored[index][1]
    tape.flip(record.offset, 70)
    try:
        with tw.open_subscriber(tape.directory, "x", start="earliest") as reader:
            position_after(reader, index)
            reader.commit()
        with tw.open_subscriber(tape.directory, "x") as reader:
            got, error = read(reader)
            assert got == []
            assert_damage(error, tape, index)
            reader.skip_damaged()
            reader.commit()
        with tw.open_subscriber(tape.directory, "x") as reader:
            assert read(reader) == (tape.records[index + 1 :], None)
            reader.close(forget=True)
    finally:
        tape.flip(record.offset, 70)


# ---- without checksums --------------------------------------------------------------------------


def test_without_payload_checksums_headers_are_still_checked_and_payloads_are_not(tmp):
    with build(tmp / "q", checksum=False) as writer:
        tape = Tape(tmp / "q", writer, "live")
        index = tape.index_of(63)
        record = tape.stored[index][1]
        assert record.flags & 1
        tape.flip(record.offset + 64, 8)
        with tw.open_log(tmp / "q") as reader:
            got, error = read(reader)
        assert error is None
        damaged = bytearray(record.payload)
        damaged[1] ^= 1
        assert got[index][4] == damaged
        assert got[:index] == tape.records[:index]
        assert got[index + 1 :] == tape.records[index + 1 :]
        tape.flip(record.offset + 64, 8)
        for bit in range(36 * 8):
            tape.flip(record.offset, bit)
            assert check_flip(tape, index, bit, by_next)
            tape.flip(record.offset, bit)
        tape.close()


# ---- records written elsewhere, without a header check ------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_record_without_header_check_never_shows_another_payload(tmp, size):
    records = [
        qf.record(n, bytes([n]) * length, checked=False)
        for n, length in enumerate((10, 0, size, 20, 30))
    ]
    queue = qf.write_queue(tmp / "q", [records])
    original = {r.seq: r.payload for _, r in qf.stored_records(queue)}
    offset = 64 + sum(map(len, records[:2]))
    with open(qf.segment_path(queue, 0), "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for bit in range(36 * 8):
            data[offset + bit // 8] ^= 1 << bit % 8
            with tw.open_log(queue) as reader:
                payloads = []
                for _ in range(20):
                    got, error = read(reader)
                    payloads += [r[4] for r in got]
                    if error is None or (
                        not isinstance(error, tw.GapDetected) and not reader.skip_damaged().bytes
                    ):
                        break
                whole = list(original.values())
                assert payloads in (whole, [*whole[:2], *whole[3:]], whole[:2]), f"bit {bit}"
                assert payloads == whole or error is not None or len(payloads) == len(whole) - 1
            data[offset + bit // 8] ^= 1 << bit % 8


# ---- opening a writer repairs it ----------------------------------------------------------------


@pytest.fixture
def closed(tmp):
    # Only the first record of a segment is in its index: recovery scans the complete last segment.
    with build(tmp / "q", index_stride=4096) as writer:
        pass
    tape = Tape(tmp / "q", writer, "active")
    yield tape
    tape.close()


def read_over_gaps(directory):
    """Every record, and the gaps that were reported on the way."""
    gaps, records = [], []
    with tw.open_log(directory) as reader:
        while True:
            got, error = read(reader)
            records += got
            if not isinstance(error, tw.GapDetected):
                assert error is None
                return SimpleNamespace(records=records, gaps=gaps)
            gaps.append((error.first, error.last))


@pytest.mark.parametrize("target", TARGETS)
def test_a_writer_repairs_a_flipped_header_and_loses_no_other_record(closed, tmp, target):
    index = TARGETS[target](closed)
    record = closed.stored[index][1]
    path = qf.segment_path(tmp / "copy", 1)
    for bit in HEADER_BITS:
        closed.flip(record.offset, bit)
        shutil.copytree(closed.directory, tmp / "copy")
        closed.flip(record.offset, bit)
        damaged = path.read_bytes()
        with tw.open_publisher(tmp / "copy", preallocate=False) as writer:
            metrics = writer.metrics()
            new = writer.append(9, b"new", timestamp_ns=1)
        found = read_over_gaps(tmp / "copy")
        added = (new, 1, 9, 0, b"new")
        if bit >= 36 * 8:
            assert found.records == [*closed.records, added], f"bit {bit}"
            assert (metrics["damaged_spans"], metrics["recovered_pads"]) == (0, 0)
        elif target == "last of the segment":
            # Nothing follows it, but the writer that closed the log recorded its end.
            assert found.records == [*closed.records[:-1], added], f"bit {bit}"
            assert (metrics["damaged_spans"], metrics["recovered_pads"]) == (1, 0)
            assert found.gaps == [(record.seq, record.seq)]
        else:
            rest = closed.records[index + 1 :]
            assert found.records == [*closed.records[:index], *rest, added], f"bit {bit}"
            assert found.gaps == [(record.seq, record.seq)]
            assert (metrics["damaged_spans"], metrics["recovered_pads"]) == (1, 0)
            assert path.with_suffix(".q.damaged").read_bytes() == damaged
            assert [(r.offset, r.end) for r in qf.parse_segment(path)[1] if r.is_pad] == [
                (record.offset, record.end)
            ]
        shutil.rmtree(tmp / "copy")


def test_a_writer_repairs_a_flipped_payload(closed, tmp):
    index = closed.index_of(64)
    record = closed.stored[index][1]
    closed.flip(record.offset + 64, 17)
    with tw.open_publisher(closed.directory) as writer:
        assert writer.metrics()["damaged_spans"] == 1
        assert writer.next_seq == closed.records[-1][0] + 1
    found = read_over_gaps(closed.directory)
    assert found.records == closed.records[:index] + closed.records[index + 1 :]
    assert found.gaps == [(record.seq, record.seq)]
