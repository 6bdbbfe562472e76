"""The files of a live queue, read by path with the layouts of `queue_format`."""

import struct

from tests.support import queue_format


def control(queue):
    """The fields of control.meta."""
    return queue_format.unpack("ControlBlock", (queue / "control.meta").read_bytes())


def reader_slot(queue, name):
    """The valid slot of a reader's file."""
    return queue_format.parse_reader_meta((queue / "readers" / f"{name}.meta").read_bytes())


def segment_flags(queue, segment_id):
    data = queue_format.segment_path(queue, segment_id).read_bytes()
    return queue_format.unpack("SegmentHeader", data)["flags"]


def records(queue):
    """Every record on file, without PADs."""
    return [stored for _, stored in queue_format.stored_records(queue)]


def index(queue, segment_id):
    """Header and entries of a seek index."""
    control = queue_format.unpack("ControlBlock", (queue / "control.meta").read_bytes())
    data = queue_format.index_path(queue, segment_id).read_bytes()
    return queue_format.parse_index(data, control["key"])


def stats(queue):
    """The counters of stats.meta, in file order."""
    data = (queue / "stats.meta").read_bytes()
    assert len(data) == 4096
    _, _, count, _ = struct.unpack_from("<IIII", data)
    return list(struct.unpack_from(f"<{count}Q", data, 16))


def flip_bit(path, *, offset, bit):
    """Flip one bit of the little-endian word at `offset`, as damaged memory does."""
    at = offset + bit // 8
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit % 8]))
