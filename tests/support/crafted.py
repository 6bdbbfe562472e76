"""Queues built byte by byte, so that each rule of recovery is tested by itself."""

import shutil

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


def poke_control(queue, **fields):
    """Store fields of control.meta without updating its check, so that a hint fails the check."""
    data = bytearray((queue / "control.meta").read_bytes())
    qf.poke(data, "ControlBlock", **fields)
    (queue / "control.meta").write_bytes(data)


def poke_position(queue, segment, offset):
    """Store another position as a writer does, with its check."""
    key = qf.key_of(queue)
    check = offset ^ qf.mixed_key(key, segment)
    poke_control(queue, current_segment=segment, write_offset=offset, write_check=check)


def reopen(queue, **options):
    """Open a writer, append one record, close; its metrics, next seq, and the record's place."""
    with tw.open_publisher(queue, preallocate=False, **options) as writer:
        metrics = writer.metrics()
        metrics["next_seq"] = writer.next_seq
        writer.append(0x77, b"new")
        fields = qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())
    place = fields["current_segment"], fields["write_offset"] - 128
    data = qf.segment_path(queue, place[0]).read_bytes()
    last = qf.parse_records(data, place[1], key=fields["key"], segment_id=place[0])
    assert [(r.seq, r.payload) for r in last] == [(metrics["next_seq"], b"new")]
    metrics["place"] = place
    return metrics


def shown(queue):
    """``[(seq, payload), …]`` of a reader that continues after gaps and damage, as events."""
    records, events = [], []
    with tw.open_log(queue) as reader:
        while True:
            try:
                record = reader.next()
            except tw.GapDetected as gap:
                events.append(("gap", gap.first, gap.last))
                continue
            except (tw.CorruptRecord, tw.CorruptMetadata) as error:
                skipped = reader.skip_damaged()
                events.append(("damage", error.offset, skipped.first_seq, skipped.last_seq))
                if skipped.bytes == 0:
                    return records, events
                continue
            if record is None:
                return records, events
            records.append((record.seq, bytes(record.payload)))


def read(queue):
    """As `shown`, with only the sequence numbers, and only the place of damage."""
    records, events = shown(queue)
    places = [event[:2] if event[0] == "damage" else event for event in events]
    return [seq for seq, _ in records], places


def pads(queue, segment):
    _, records = qf.parse_segment(qf.segment_path(queue, segment))
    return [(r.offset, r.end) for r in records if r.is_pad]


def is_sealed(queue, segment):
    header, _ = qf.parse_segment(qf.segment_path(queue, segment))
    return bool(header["flags"] & qf.SEALED)


def untouched(metrics):
    return (metrics["recovered_pads"], metrics["damaged_spans"], metrics["gaps_found"]) == (0, 0, 0)


def break_header(path):
    """Damage the header of a segment file, but not its records."""
    with open(path, "r+b") as file:
        file.write(b"\xff" * 64)


def _copy_indexes(live, path):
    """Copy until no file was copied in the middle of a write."""
    key = qf.unpack("ControlBlock", (live / "control.meta").read_bytes())["key"]
    for index in live.glob("*.idx"):
        while True:
            data = index.read_bytes()
            try:
                qf.parse_index(data, key)
            except ValueError:
                continue
            (path / index.name).write_bytes(data)
            break


def drop_torn_indexes(queue):
    """A damaged seek index, as left by a kill in the middle of writing it; nothing is lost."""
    key = qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())["key"]
    for index in queue.glob("*.idx"):
        try:
            qf.parse_index(index.read_bytes(), key)
        except ValueError:
            index.unlink()


def write_log(path, payloads, *, killed=False, restarted=False, **options):
    """A queue of these payloads, closed or left by a killed writer; record `n` has time `n`.

    `restarted`: the machine was restarted after the kill.
    """
    other = path.with_name(path.name + ".live")
    options = {"segment_bytes": BYTES, "preallocate": False, **options}
    with tw.open_publisher(other, **options) as writer:
        for payload in payloads:
            writer.append(1, payload, timestamp_ns=writer.next_seq)
        if killed:
            shutil.copytree(other, path)
            _copy_indexes(other, path)
    if not killed:
        shutil.copytree(other, path)
    shutil.rmtree(other)
    if restarted:
        qf.restart_machine(path)
    return path


def raw_record(queue, segment, stored):
    """The bytes of a `Stored` record as they are on file."""
    return qf.segment_path(queue, segment).read_bytes()[stored.offset : stored.end]
