"""The files of a queue as bytes: read them, or put them into states that only a crash leaves."""

import os
import shutil
import struct
import time
from dataclasses import dataclass
from pathlib import Path

DATA = 64  # where the records of a segment begin
SEALED = 1
PAD = 0xFFFF

# control.meta: offset and format of the words that tests read or change.
SEGMENT_GEN = (128, "<I")
CURRENT_SEGMENT = (132, "<I")
WRITE_OFFSET = (256, "<Q")
HEARTBEAT = (264, "<Q")
NOTIFY_SEQ = (384, "<I")
WAITERS_PENDING = (388, "<I")


def segment(queue, number):
    return queue / f"{number:09d}.q"


def segments(queue):
    """Numbers of the segments that have a name."""
    return sorted(int(path.name[:9]) for path in queue.glob("?????????.q"))


def peek(path, offset, size):
    with open(path, "rb") as file:
        return os.pread(file.fileno(), size, offset)


def poke(path, offset, data):
    """Overwrite bytes in place, visible in other mappings."""
    with open(path, "r+b") as file:
        assert os.pwrite(file.fileno(), data, offset) == len(data)


def replace(path):
    """Replace a file by a copy, as an editor or rsync does."""
    shutil.copyfile(path, path.with_name("copy"))
    os.rename(path.with_name("copy"), path)


def control(queue, word):
    offset, form = word
    data = peek(Path(queue) / "control.meta", offset, struct.calcsize(form))
    return struct.unpack(form, data)[0]


def set_control(queue, word, value):
    offset, form = word
    poke(queue / "control.meta", offset, struct.pack(form, value))


def await_beats(queue, count=3):
    """Wait until the writer has checked its lock files and, without appends, will not soon again.

    It checks at its first heartbeat and at the next one after an append, then every ten seconds.
    """
    deadline = time.monotonic() + 20
    for _ in range(count):
        before = control(queue, HEARTBEAT)
        while control(queue, HEARTBEAT) == before:
            assert time.monotonic() < deadline, "the writer has no heartbeat"
            time.sleep(0.001)


def flags(queue, number):
    return struct.unpack("<I", peek(segment(queue, number), 12, 4))[0]


def is_sealed(queue, number):
    return bool(flags(queue, number) & SEALED)


def set_flags(queue, number, value):
    poke(segment(queue, number), 12, struct.pack("<I", value))


@dataclass(frozen=True)
class Place:
    """The place and header of a record."""

    offset: int
    length: int  # of the payload
    seq: int
    type_id: int

    @property
    def end(self):
        return self.offset + (64 + self.length + 63) // 64 * 64


def places(queue, number):
    """Every committed record of a segment, PADs included, following the commit words."""
    data = segment(queue, number).read_bytes()
    found = []
    offset = DATA
    while offset + 64 <= len(data):
        commit, seq, _, type_id = struct.unpack_from("<I4xQQH", data, offset)
        if commit == 0:
            break
        found.append(Place(offset, commit - 1, seq, type_id))
        offset = found[-1].end
    return found


def end_of(queue, number):
    """Where the committed records of a segment end."""
    found = places(queue, number)
    return found[-1].end if found else DATA
