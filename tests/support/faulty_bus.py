"""Queues with one fault each, as killed processes leave them."""

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.processes import WRITER, Child


def good(path, records=20):
    """A queue of three segments, closed."""
    with tw.open_publisher(path, segment_bytes=8192, preallocate=False) as writer:
        writer.append_batch(1, [bytes([n % 256]) * 900 for n in range(records)])
    return path


def add_dead_reader(queue, name="gone", pinned=False):
    """A reader that has been silent since 1970."""
    (queue / "readers").mkdir(exist_ok=True)
    slot = qf.reader_slot(0, 64, 1, flags=0xFFFFFFFF if pinned else 0)
    (queue / "readers" / f"{name}.meta").write_bytes(qf.reader_meta(slot))


def kill_writer(queue):
    """Its name remains in writer.lock; it has appended nothing."""
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        child.kill()
    for path in queue.glob("*.tmp"):  # it prepares segments, and may be killed while doing so
        path.unlink()
    return child.pid


def add_temporary_file(queue):
    (queue / "000000007.q.tmp").write_bytes(b"half")


def unseal(queue, segment=0):
    path = qf.segment_path(queue, segment)
    data = bytearray(path.read_bytes())
    flags = qf.unpack("SegmentHeader", data)["flags"]
    qf.poke(data, "SegmentHeader", flags=flags & ~qf.SEALED)
    path.write_bytes(data)
