"""Live queues that span days, and the content of an archive made from them."""

import tapewire as tw
from tapewire import archive, bus

DAY_NS = 86_400 * 10**9
MIDNIGHT_NS = 1_767_225_600 * 10**9  # 2026-01-01
TYPE = 0x2001


def clean_queue(root, symbol="BTCUSDT", stream="trades", venue="okx"):
    return bus.Layout(root).streams.clean(venue, symbol, stream)


def payload_of(seq):
    """Determined by its sequence number, of many sizes."""
    return b"%d|" % seq + bytes([seq % 251]) * (seq % 97)


def late_time_of(seq, step_ns):
    """Changing days, and now and then a record that is a day late."""
    return MIDNIGHT_NS + DAY_NS + seq * step_ns - (DAY_NS if seq % 50 == 7 else 0)


def write_late(writer, count, step_ns):
    """Records whose fields are all determined by `late_key`."""
    for seq in range(writer.next_seq, writer.next_seq + count):
        writer.append(
            TYPE, payload_of(seq), timestamp_ns=late_time_of(seq, step_ns), flags=(seq % 5) << 8
        )


def late_key(seq, step_ns):
    return seq, late_time_of(seq, step_ns), TYPE, (seq % 5) << 8, payload_of(seq)


def write_numbered(writer, count, *, start_ns=MIDNIGHT_NS, step_ns=1_000_000):
    """Records with payloads of `payload_of`, `step_ns` apart."""
    for _ in range(count):
        seq = writer.next_seq
        writer.append(
            TYPE + seq % 3,
            payload_of(seq),
            timestamp_ns=start_ns + seq * step_ns,
            flags=(seq % 5) << 8,
        )


def fill(queue, count, *, segment_bytes=65536, **times):
    """A closed queue of so many more records."""
    with tw.open_publisher(queue, segment_bytes=segment_bytes) as writer:
        write_numbered(writer, count, **times)


def key(record):
    return (
        record.seq,
        record.timestamp_ns,
        record.type_id,
        record.flags & 0xFF00,
        bytes(record.payload),
    )


def records_of(log):
    """Everything in a log, as plain values."""
    with tw.open_log(log) as reader:
        return [key(record) for record in reader]


def archived(root):
    """Every record of an archive, by the path of its log."""
    return {one.log: records_of(root / one.log) for one in archive.ls(root)}


def all_archived(root):
    """Every record of one stream of an archive, by sequence number."""
    return sorted(record for log in archived(root).values() for record in log)


def run_once(source, root, **options):
    return archive.tap(source, root, **options).run(follow=False)
