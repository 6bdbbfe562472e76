"""The processes of the soak test: one writer, and readers of many kinds, one thread each.

Run as `main()` with a role and its arguments as JSON. A process prints "ready", and its result at
the end; the writer starts at the next line of its input.
"""

import json
import random
import struct
import sys
import threading
import time
import traceback
from dataclasses import dataclass

import tapewire as tw
from tests.crash.tape import Board

TYPE = 0x1001
SEGMENT = 16 << 20
MAX_SEGMENTS = 100
# 40 KiB on average: 10 GB pass through 50 readers within minutes.
SIZES = [100, 90_000, 4_096, 60_000, 12_345, 75_000, 64, 80_000]
TABLE = random.Random(0x50AC).randbytes(256 << 10)
NUMBER = struct.Struct("<Q")

# Words of the board: the end of the log once it is known, bytes appended, a row for each reader.
END, WRITTEN = 0, 1
FIRST_ROW, ROW_WORDS = 8, 8
ABOUT, COMMITTED, LIVES, OVERTAKEN = range(4)


def length_of(seq):
    return SIZES[seq % len(SIZES)] + seq % 97


def payload_of(seq):
    """Its sequence number, bytes derived from it, and the sequence number again."""
    number = NUMBER.pack(seq)
    start = seq * 40503 % (len(TABLE) >> 1)
    return number + TABLE[start : start + length_of(seq) - 16] + number


def writer(queue, board, total_bytes):
    words = Board(board).words
    with tw.open_publisher(
        queue,
        segment_bytes=SEGMENT,
        max_segments=MAX_SEGMENTS,
        when_full=tw.Block(timeout=120.0),
        retention=tw.Retention(reader_ttl=120.0, max_reader_lag_bytes=1 << 40),
    ) as opened:
        say("ready")
        sys.stdin.readline()
        appended = 0
        while appended < total_bytes:
            payload = payload_of(opened.next_seq)
            opened.append(TYPE, payload)
            appended += len(payload)
            words[WRITTEN] = appended
        words[END] = opened.next_seq
        metrics = opened.metrics()
    say(
        json.dumps(
            {"bytes": appended, "records": words[END], "retired": metrics["segments_retired"]}
        )
    )


@dataclass(frozen=True)
class Habit:
    """How a reader reads. It commits with every batch, or with every 256 single records."""

    name: str | None  # None: anonymous; may be overtaken, which it reports
    row: int
    wait: str = "park"
    batch: int = 256  # 0: one by one
    nap: float = 0.0  # after each batch
    long_nap: float = 0.0  # after every 64 batches
    restart_every: int = 0  # batches; 0: never

    def open(self, queue):
        if self.name is None:
            return tw.open_log(queue)
        wait = {"park": tw.SpinThenPark(0), "spin a little": tw.SpinThenPark(20)}.get(self.wait)
        return tw.open_subscriber(queue, self.name, wait=wait or tw.Sleep(0.005))


class Follower:
    """Read to the end of the log, across restarts, and check every record."""

    def __init__(self, queue, board, habit):
        self._queue = queue
        self._habit = habit
        row = FIRST_ROW + ROW_WORDS * habit.row
        self._all = Board(board).words
        self._words = self._all[row : row + ROW_WORDS]
        self._expected = None  # the next sequence number; None: any
        self._reader = habit.open(queue)
        self._words[LIVES] += 1

    def run(self):
        batches = 0
        while not self._at_end():
            if self._step() == 0:
                self._reader.wait(0.2)
                continue
            batches += 1
            time.sleep(self._habit.nap)
            if batches % 64 == 0:
                time.sleep(self._habit.long_nap)
            if self._habit.restart_every and batches % self._habit.restart_every == 0:
                self._reader.close()
                self._expected = None
                self._reader = self._habit.open(self._queue)
                self._words[LIVES] += 1
        self._reader.close()

    def _at_end(self):
        # After resuming, a reader is at the record after its commit.
        position = self._words[COMMITTED] if self._expected is None else self._expected
        return position == self._all[END] != 0

    def _step(self):
        try:
            seen = self._read_batch() if self._habit.batch else self._read_singly()
        except tw.SegmentMissing:
            if self._habit.name is not None:
                raise
            self._words[OVERTAKEN] += 1
            self._reader.seek_start()
            self._expected = None
            return 0
        if seen and self._habit.name is not None:
            self._words[ABOUT] = self._expected
            self._reader.commit()
            self._words[COMMITTED] = self._expected
        return seen

    def _read_batch(self):
        records = self._reader.read_batch(self._habit.batch)
        for record in records:
            self._take(record)
        return len(records)

    def _read_singly(self):
        for seen in range(256):
            record = self._reader.next()
            if record is None:
                return seen
            self._take(record)
        return 256

    def _take(self, record):
        seq, payload = record.seq, record.payload
        if self._expected is None:
            if self._habit.name is not None:
                low, high = self._words[COMMITTED], self._words[ABOUT]
                assert low <= seq <= high, f"resumed at {seq}, committed {low} to {high}"
        else:
            assert seq == self._expected, f"expected {self._expected}, got {seq}"
        # The reader has verified the checksum; the sequence numbers identify the record. Of every
        # 16th (another one for each reader) all bytes are compared.
        assert len(payload) == length_of(seq), f"{len(payload)} bytes in {seq}"
        assert NUMBER.unpack_from(payload)[0] == seq
        assert NUMBER.unpack_from(payload, len(payload) - 8)[0] == seq
        if (seq + self._habit.row) % 16 == 0:
            assert bytes(payload) == payload_of(seq), f"other bytes in {seq}"
        self._expected = seq + 1


def readers(queue, board, habits):
    followers = [Follower(queue, board, Habit(**habit)) for habit in habits]
    failures = []

    def follow(follower):
        try:
            follower.run()
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=follow, args=(one,), daemon=True) for one in followers]
    say("ready")
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not failures:
        for thread in threads:
            thread.join(0.05)
    say(json.dumps({"failures": failures}))


def say(text):
    print(text, flush=True)


def main():
    role, arguments = sys.argv[1:]
    {"writer": writer, "readers": readers}[role](**json.loads(arguments))
