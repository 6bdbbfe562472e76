"""Queues built byte by byte, so that each rule of recovery is met alone."""

import tapewire as tw
from tests.support import queue_format as qf

BYTES = 8192


def write(tmp, *segments, **options):
    return qf.write_queue(tmp / "q", segments, segment_bytes=BYTES, **options)


def numbered(first, count, size=40, **options):
    return [qf.record(n, bytes([n % 256]) * size, **options) for n in range(first, first + count)]


def full(first, count):
    """Records that fill a segment to its last byte."""
    room = BYTES - 64 - (count - 1) * 64
    return [*numbered(first, count - 1, 0), qf.record(first + count - 1, bytes(room - 64))]


def offset_of(records, index):
    return 64 + sum(map(len, records[:index]))


def patch(queue, segment, offset, data):
    with open(qf.segment_path(queue, segment), "r+b") as file:
        file.seek(offset)
        file.write(data)


def damage(queue, segment, offset, at=20):
    """Flip a bit of the record header at `offset`."""
    with open(qf.segment_path(queue, segment), "r+b") as file:
        file.seek(offset + at)
        byte = file.read(1)[0]
        file.seek(offset + at)
        file.write(bytes([byte ^ 0x10]))


def reopen(queue, **options):
    """Open and close a writer; its metrics, next number, and where its one new record went."""
    with tw.open_publisher(queue, preallocate=False, **options) as writer:
        metrics = writer.metrics()
        metrics["next_seq"] = writer.next_seq
        writer.append(0x77, b"new")
        fields = qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())
    place = fields["current_segment"], fields["write_offset"] - 128
    data = qf.segment_path(queue, place[0]).read_bytes()
    last = qf.parse_records(data, place[1])
    assert [(r.seq, r.payload) for r in last] == [(metrics["next_seq"], b"new")]
    metrics["place"] = place
    return metrics


def read(queue):
    """``(numbers, events)`` of a reader that goes on after gaps and damage; those are events."""
    numbers, events = [], []
    with tw.open_log(queue) as reader:
        while True:
            try:
                record = reader.next()
            except tw.GapDetected as gap:
                events.append(("gap", gap.first, gap.last))
                continue
            except tw.CorruptRecord as error:
                events.append(("damage", error.offset))
                if reader.skip_damaged().bytes == 0:
                    return numbers, events
                continue
            if record is None:
                return numbers, events
            numbers.append(record.seq)


def pads(queue, segment):
    _, records = qf.parse_segment(qf.segment_path(queue, segment))
    return [(r.offset, r.end) for r in records if r.is_pad]


def is_sealed(queue, segment):
    header, _ = qf.parse_segment(qf.segment_path(queue, segment))
    return bool(header["flags"] & qf.SEALED)


def untouched(metrics):
    return (metrics["recovered_pads"], metrics["damaged_spans"], metrics["gaps_found"]) == (0, 0, 0)


def break_header(path):
    """Damage the header of a segment file; its records stay as they are."""
    with open(path, "r+b") as file:
        file.write(b"\xff" * 64)
