"""Records whose bytes follow from their sequence number, so that a reader can check them."""

import mmap
import os
import random

TABLE = random.Random(0x7A9E).randbytes(8192)
TYPE = 0x1001
LONGEST = 1200


def length_of(seq):
    if seq % 19 == 0:
        return 0
    return 8 + (seq * 2654435761 >> 7) % (LONGEST - 8 if seq % 23 == 0 else 250)


def payload_of(seq):
    length = length_of(seq)
    if length == 0:
        return b""
    start = (seq * 40503 >> 3) % (len(TABLE) - LONGEST)
    return seq.to_bytes(8, "little") + TABLE[start : start + length - 8]


def check(record):
    """Check that a record is exactly the one appended under its sequence number."""
    assert record.type_id == TYPE, f"type of {record!r}"
    assert record.payload == payload_of(record.seq), f"torn: {record!r}"


class Tape:
    """Check the records of a reader: contiguous, with the expected bytes, none duplicated."""

    def __init__(self, reader, expected=None):
        self.reader = reader
        self.expected = expected

    def take(self, record):
        if self.expected is not None:
            assert record.seq == self.expected, f"expected {self.expected}, got {record.seq}"
        check(record)
        self.expected = record.seq + 1

    def to_end(self):
        """Read to the end; the sequence number after the last record, or None."""
        for record in self.reader:
            self.take(record)
        return self.expected


class Board:
    """Numbers that survive their writer: u64 words in a shared file."""

    def __init__(self, path, create=False):
        fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        if create:
            os.truncate(fd, 4096)
        self._map = mmap.mmap(fd, 4096)
        os.close(fd)
        self.words = memoryview(self._map).cast("Q")

    def __getitem__(self, index):
        return self.words[index]

    def __setitem__(self, index, value):
        self.words[index] = value
