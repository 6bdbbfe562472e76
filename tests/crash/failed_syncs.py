"""Child processes whose disk fails to write; each sends "ok" if all checks passed."""

import errno

import tapewire as tw
from tests.crash.faults import raises
from tests.crash.small_disk import ThinDisk, small_disk_or_say_why
from tests.crash.tape import TYPE, Tape, payload_of

SEGMENT = 16 << 20
# 8 MB, so that it takes several writes: a loop device calls one done when its first part is.
RECORDS = 40_000


def _append(writer, records):
    for _ in range(records):
        writer.append(TYPE, payload_of(writer.next_seq))


def _fail(writer, disk):
    """Append more than the disk can store; flush_sync raises, and raises again."""
    disk.starve()
    _append(writer, RECORDS)
    with raises(tw.StorageError) as caught:
        writer.flush_sync()
    assert caught[0].errno in (errno.EIO, errno.ENOSPC), caught[0]
    disk.feed()
    with raises(tw.StorageError):
        writer.flush_sync()  # the kernel treats the pages as clean now; this writer does not


def write_back_fails(line, where, rolls):
    """In the segment that the next writer appends to, or (`rolls`) in one that was sealed."""
    disk = small_disk_or_say_why(line, where, ThinDisk)
    writer = tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False)
    _append(writer, 100)
    writer.flush_sync()
    _fail(writer, disk)
    if rolls:
        while writer.metrics()["rolls"] == 0:
            _append(writer, 100)
    count = writer.next_seq
    with raises(tw.StorageError):
        writer.close()
    with tw.open_publisher(disk.queue, preallocate=False) as writer:
        assert writer.next_seq == count, "the page cache still has them"
        writer.flush_sync()  # acknowledges them
    disk.mount_again()
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == count
    line.say("ok")


def leave_unsynced(line, queue, records):
    """Send the end of the flushed records and the end of all; then wait to be killed."""
    writer = tw.open_publisher(queue, segment_bytes=1 << 20, preallocate=False)
    _append(writer, 100)
    writer.flush_sync()
    flushed = tw.queue.status(queue).end_offset
    _append(writer, records)
    line.say("left", flushed, tw.queue.status(queue).end_offset)
    line.hear(timeout=60)
