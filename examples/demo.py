"""Three processes on one tape: a feed and two readers, one of them killed and resumed.

`make demo` runs it. It ends by itself, says what happened and leaves a picture and a page in
`demo-output/`.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from feed import PRICE, prices

import tapewire as tw

END = 0x0101  # the feed's last word
READERS = ("strategy", "recorder")
COMMIT_EVERY = 1_000
SEGMENT_BYTES = 1 << 20
PACE_S = 0.0002  # between bursts of 1 to 4 prices: about 8,000 a second, gentle with two cores

# What the processes tell each other about themselves: one row each, in a file that outlives a kill.
BOARD = np.dtype(
    [
        ("records", "i8"),
        ("segment", "i8"),
        ("started_ns", "i8"),
        ("first_seq", "i8"),  # of the latest start
        ("committing", "i8"),  # the number that is being committed, and the last that is
        ("committed", "i8"),
    ]
)
# What a reader notes of each record: how often it came, and how long it took to come.
NOTE = np.dtype([("seen", "i8"), ("latency_ns", "i8")])


def board_of(folder):
    return np.memmap(folder / "board", BOARD, "r+", shape=(1 + len(READERS),))


def notes_of(folder, name):
    return np.memmap(folder / f"{name}.notes", NOTE, "r+")


def feed(folder, seconds):
    me = board_of(folder)[0]
    choose = random.Random(7)
    ticks = prices(seed=7)
    with tw.open_publisher(folder / "queue", segment_bytes=SEGMENT_BYTES) as writer:
        me["started_ns"] = time.time_ns()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(choose.randint(1, 4)):
                me["records"] = writer.append(PRICE, next(ticks)) + 1
            me["segment"] = writer.metrics()["rolls"]
            time.sleep(PACE_S)
        writer.append(END, b"")


def read(folder, name):
    me = board_of(folder)[1 + READERS.index(name)]
    notes = notes_of(folder, name)

    def take(record, live):
        """Note one record; False when it is the feed's last word."""
        now_ns = time.time_ns()
        if record.type_id == END:
            return False
        seq = record.seq
        if me["first_seq"] < 0:
            me["first_seq"] = seq
        note = notes[seq]
        note["seen"] += 1
        if live:
            note["latency_ns"] = now_ns - record.timestamp_ns
        me["records"] = seq + 1
        if (seq + 1) % COMMIT_EVERY == 0:
            me["committing"] = seq + 1
            reader.commit()
            me["committed"] = seq + 1
        return True

    wait = tw.SpinThenPark(spin_us=10)
    with tw.open_subscriber(folder / "queue", name, wait=wait, create_timeout=10.0) as reader:
        me["first_seq"] = -1
        me["started_ns"] = time.time_ns()
        # First what waited for us, then what we wait for: only the latter has a latency.
        if all(take(record, live=False) for record in reader):
            all(take(record, live=True) for record in reader.follow(timeout=10.0))
        reader.commit()
        me["committed"] = me["committing"] = me["records"]


@dataclass
class Story:
    """What happened, for the summary, the picture and the page."""

    seconds: float
    samples: list = field(default_factory=list)  # (time, written, read by each)
    killed_at: float = 0.0
    resumed_at: float = 0.0
    read_before_kill: int = 0
    committed_before_kill: int = 0
    committing_before_kill: int = 0
    resumed_seq: int = 0
    waiting_at_resume: int = 0
    caught_up_after: float | None = None
    rolls: int = 0


@dataclass
class Facts:
    """What was counted and checked."""

    records: int
    rate: float
    seen_again: int
    latencies: dict  # name of the reader: nanoseconds of each record that it followed live


class Stage:
    """Starts the processes, watches the board, tells the story as it goes."""

    def __init__(self, folder, seconds):
        self.folder = folder
        self.story = Story(seconds)
        self.processes = {}
        self.begin = time.monotonic()
        capacity = int(seconds * 4 / PACE_S) + 1_000
        np.memmap(folder / "board", BOARD, "w+", shape=(1 + len(READERS),))
        for name in READERS:
            np.memmap(folder / f"{name}.notes", NOTE, "w+", shape=(capacity,))
        self.board = board_of(folder)
        self.next_line = 1.0

    def now(self):
        return time.monotonic() - self.begin

    def say(self, text):
        print(f"{self.now():5.1f} s  {text}", flush=True)

    def start(self, name, target, *args):
        # A fresh interpreter each: nothing is inherited.
        process = multiprocessing.get_context("spawn").Process(
            target=target, args=(self.folder, *args)
        )
        process.start()
        self.processes[name] = process
        return process.pid

    def watch(self, until):
        """Sample and tell until `until()` is true."""
        story, board = self.story, self.board
        while not until():
            self._fail_early()
            written, *reads = (int(n) for n in board["records"])
            story.samples.append((self.now(), written, *reads))
            if board[0]["segment"] > story.rolls:
                story.rolls = int(board[0]["segment"])
                self.say(f"the feed rolled into segment {story.rolls}")
            if story.resumed_at and story.caught_up_after is None and reads[1] >= written - 50:
                story.caught_up_after = self.now() - story.resumed_at
                self.say(
                    f"{READERS[1]} has caught up, {story.caught_up_after:.2f} s after its start"
                )
            if self.now() >= self.next_line:
                self.next_line += 1.0
                counts = ", ".join(f"{n} {c:,}" for n, c in zip(READERS, reads, strict=True))
                self.say(f"feed {written:,} records; {counts}")
            time.sleep(0.02)

    def _fail_early(self):
        for name, process in self.processes.items():
            if process.exitcode not in (None, 0):
                raise SystemExit(f"{name} failed: exit code {process.exitcode}")

    def run(self):
        story, seconds = self.story, self.story.seconds
        self.say("a feed and two readers start, each a process of its own")
        for name in READERS:
            self.say(f"{name} is process {self.start(name, read, name)}")
        self.say(f"feed is process {self.start('feed', feed, seconds)}")
        self.watch(lambda: all(self.board["started_ns"] > 0))
        feed_began = self.now()
        self.watch(lambda: self.now() >= feed_began + 0.35 * seconds)
        self._kill()
        self.watch(lambda: self.now() >= feed_began + 0.55 * seconds)
        self._resume()
        self.watch(lambda: not any(process.is_alive() for process in self.processes.values()))
        self._fail_early()
        self.say("the feed has ended and both readers have read its last record")
        return story

    def _kill(self):
        story, name = self.story, READERS[1]
        victim = self.processes.pop(name)
        # Not just behind a commit: there shall be something to be seen again.
        me = self.board[2]
        self.watch(lambda: me["records"] % COMMIT_EVERY > COMMIT_EVERY // 4)
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        story.killed_at = self.now()
        story.read_before_kill = int(me["records"])
        story.committed_before_kill = int(me["committed"])
        story.committing_before_kill = int(me["committing"])
        me["started_ns"] = 0
        self.say(
            f"kill -9 {victim.pid}: {name} is dead; it had read {story.read_before_kill:,} records "
            f"and committed {story.committed_before_kill:,}"
        )

    def _resume(self):
        story, name, me = self.story, READERS[1], self.board[2]
        pid = self.start(name, read, name)
        self.watch(lambda: me["started_ns"] > 0 and me["first_seq"] >= 0)
        story.resumed_at = self.now()
        story.resumed_seq = int(me["first_seq"])
        story.waiting_at_resume = int(self.board[0]["records"]) - story.resumed_seq
        self.say(
            f"{name} is back as process {pid}: it resumes at number {story.resumed_seq:,}, "
            f"with {story.waiting_at_resume:,} records waiting"
        )

    def stop(self):
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join()


def check(folder, story):
    """Nothing lost; nothing twice, but for what was read and not yet committed."""
    written = int(board_of(folder)[0]["records"])
    again = {}
    latencies = {}
    for name in READERS:
        notes = notes_of(folder, name)[:written]
        lost = int(np.count_nonzero(notes["seen"] == 0))
        assert lost == 0, f"{name} has lost {lost} records"
        assert notes["seen"].max() <= 2, f"{name} has seen a record three times"
        again[name] = np.flatnonzero(notes["seen"] == 2)
        latencies[name] = np.array(notes["latency_ns"][notes["latency_ns"] > 0])
    assert again[READERS[0]].size == 0, "a reader that was not killed has seen a record twice"
    assert story.committed_before_kill <= story.resumed_seq <= story.committing_before_kill, story
    expected = np.arange(story.resumed_seq, story.read_before_kill)
    seen_again = again[READERS[1]]
    # It may have died between noting a record and counting it: one more, never one less.
    assert np.array_equal(seen_again[: expected.size], expected), (
        "seen twice: not just the uncommitted"
    )
    assert seen_again.size <= expected.size + 1, "seen twice: more than the uncommitted"
    return Facts(
        records=written,
        rate=written / story.seconds,
        seen_again=int(seen_again.size),
        latencies=latencies,
    )


def main():
    import demo_report  # here, so that the three processes start without matplotlib

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the feed runs")
    default = Path(__file__).resolve().parent.parent / "demo-output"
    parser.add_argument(
        "--output", type=Path, default=default, help="folder of the picture and page"
    )
    arguments = parser.parse_args()

    memory = Path("/dev/shm")
    root = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="tapewire-demo-", dir=root))
    stage = Stage(folder, arguments.seconds)
    try:
        story = stage.run()
        facts = check(folder, story)
    finally:
        stage.stop()
        shutil.rmtree(folder, ignore_errors=True)
    demo_report.tell(story, facts)
    for path in demo_report.write(arguments.output, story, facts):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
