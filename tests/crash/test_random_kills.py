"""`kill -9` of writer and readers at random moments: nothing lost, torn or duplicated.

Each episode is one queue with its own options, all from one seed. A writer counts its appends in
shared memory after each has returned; a reader records its commits there, before and after.
"""

import random
import time
from contextlib import suppress

import pytest

import tapewire as tw
from tests.crash.actors import (
    ABOUT,
    ACKED,
    BEGAN,
    COMMITTED,
    FLUSHED,
    MISSED,
    OPENED,
    OPENED_AT,
    READER_ROW,
)
from tests.crash.tape import Board, Tape

OPTIONS = [
    {},
    {"preallocate": False},
    {"preallocate": False, "defer_seal_sync": False},
    {"require_prealloc": True},
    {"flush": {"records": 50, "seconds": 0.002}},
    {"retention": {"reader_ttl": 0.02}},
    {"retention": {"reader_ttl": 0.05}, "flush": {"seconds": 0.003}, "require_prealloc": True},
    {"max_segments": 12, "block": 0.01},
    {"max_segments": 6, "retention": {"reader_ttl": 0.02}, "block": 0.002},
    {"checksum": False, "index_stride": 1},
]
# Rows of the board. The pinned reader must never miss a segment; retention may outrun the other.
READERS = {"pinned": (0, True), "loose": (1, False)}


class Episode:
    """One queue, one writer, two readers, and the loop that kills them."""

    def __init__(self, tmp, crew, seed):
        self.rng = random.Random(seed)
        self.queue = tmp / "queue"
        self.crew = crew
        self.options = OPTIONS[seed % len(OPTIONS)] | {
            "segment_bytes": self.rng.choice([8, 16, 32, 64]) << 10,
        }
        self.options.setdefault("index_stride", self.rng.choice([1, 7, 4096]))
        self.board_path = tmp / "board"
        self.board = Board(self.board_path, create=True)
        self.running = {}
        self.before = {}
        self.live = None  # a reader in this process that outlives all writers

    def start(self, role):
        self.before[role] = self.beginnings(role)
        shared = {
            "queue": str(self.queue),
            "board": str(self.board_path),
            "seed": self.rng.getrandbits(32),
        }
        if role == "writer":
            self.running[role] = self.crew.start("actors.writer", episode=self.options, **shared)
        else:
            row, pinned = READERS[role]
            self.running[role] = self.crew.start(
                "actors.reader", row=row, name=role, pinned=pinned, **shared
            )

    def beginnings(self, role):
        """How often this role has opened the queue."""
        return self.board[OPENED if role == "writer" else READER_ROW + 8 * READERS[role][0] + BEGAN]

    def kill(self, role):
        child = self.running.pop(role)
        status = child.kill()
        assert status == -9, f"{role} ended by itself: {child.last_words()}"

    def check_after_death_of_writer(self):
        """Without a writer: everything that was acknowledged exists, exactly once."""
        if not self.queue.exists() or not list(self.queue.glob("*.q")):
            assert self.board[ACKED] == 0
            return None
        with tw.open_log(self.queue) as reader:
            end = Tape(reader).to_end()
        assert (end or 0) >= self.board[ACKED]
        assert self.board[ACKED] >= self.board[FLUSHED]
        if self.live is None:
            self.live = Tape(tw.open_log(self.queue))
        with suppress(tw.SegmentMissing):
            self.live.to_end()
            return end
        self.live.reader.seek_start()
        self.live.expected = None
        return end

    def register(self):
        """Register the pinned reader before retention starts, so that it misses nothing."""
        with tw.open_publisher(self.queue, segment_bytes=self.options["segment_bytes"]):
            tw.open_subscriber(self.queue, "pinned", pinned=True).close()

    def run(self, kills):
        if "retention" in self.options or "max_segments" in self.options:
            self.register()  # else the queue is created by a writer that may be killed at it
        for role in ("writer", *READERS):
            self.start(role)
        killed = 0
        end = None
        while killed < kills:
            victims = self.rng.choice(
                [
                    ["writer"],
                    ["writer"],
                    ["pinned"],
                    ["loose"],
                    ["writer", "pinned"],
                    ["writer", "loose"],
                ]
            )
            if self.rng.random() < 0.75:  # else it may die while it opens
                self.await_work(victims[0], self.rng.choice([1, 100, 2000]), end)
            self.strike(victims, self.rng.choice([1e-4, 1e-3, 1e-2, 4e-2]) * self.rng.random())
            killed += len(victims)
            if "writer" in victims:
                end = self.check_after_death_of_writer()
            for role in victims:
                self.start(role)
        self.finish()

    def await_work(self, role, records, end):
        """Wait until `role` is open and the writer has appended so many more records."""
        goal = self.board[ACKED] + records
        deadline = time.monotonic() + 20
        while self.beginnings(role) == self.before[role] or self.board[ACKED] < goal:
            self.check_alive()
            assert time.monotonic() < deadline, f"no progress: {self.options}"
            time.sleep(0.0005)
        if role == "writer" and end is not None:
            assert self.board[OPENED_AT] == end, "the sequence continues after the last record"

    def check_alive(self):
        for role, child in self.running.items():
            line = child.line
            if (words := _heard(line)) is not None:
                pytest.fail(f"{role} failed in {self.options}: {words}")

    def strike(self, victims, delay):
        # The moment of the kill is varied; nothing waits for it.
        until = time.perf_counter() + delay
        while time.perf_counter() < until:
            pass
        for role in victims:
            self.kill(role)

    def finish(self):
        """One clean writer closes the queue; every reader sees the same end."""
        for role in list(self.running):
            self.kill(role)
        self.check_after_death_of_writer()
        with tw.open_publisher(self.queue) as writer:
            end = writer.next_seq
            assert end >= self.board[ACKED]
            assert writer.metrics()["damaged_spans"] == 0
            assert writer.metrics()["gaps_found"] == 0
        with tw.open_log(self.queue) as reader:
            assert Tape(reader).to_end() in (end, None)
        for role, (row, pinned) in READERS.items():
            words = self.board.words[READER_ROW + 8 * row :]
            if words[BEGAN] == 0 or (words[MISSED] and not pinned):
                continue
            with suppress(tw.SegmentMissing), tw.open_subscriber(self.queue, role) as reader:
                first = reader.next()
                assert (first.seq if first else end) >= words[COMMITTED]
                assert words[ABOUT] == 0 or (first.seq if first else end) <= max(words[ABOUT], end)
        if self.live is not None:
            self.live.reader.close()


def _heard(line):
    try:
        return line.hear(timeout=0)
    except TimeoutError:
        return None


# Ten episodes: every row of OPTIONS once.
@pytest.mark.parametrize("seed", range(10))
def test_forty_kills_lose_tear_and_repeat_nothing(tmp, crew, seed):
    Episode(tmp, crew, seed).run(kills=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_a_thousand_kills_lose_tear_and_repeat_nothing(tmp, crew, seed):
    Episode(tmp, crew, seed).run(kills=10)
