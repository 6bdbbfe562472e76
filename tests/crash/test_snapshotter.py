"""A snapshotter killed at any moment: no torn file is ever visible, and the next one continues."""

import random
import signal
import subprocess
import sys
import time

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.book.gaps import GapLedger
from tapewire.replay import snapshots
from tests.support.book_tapes import BTC, ETH, L2Feed, write_l2

FEEDS = (BTC, ETH)


def start(log):
    command = [sys.executable, "-m", "tapewire.cli", "snapshotter", str(log)]
    return subprocess.Popen(
        [*command, "--records", "7", "--keep", "0", "--once"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def check_files(log, newest=None):
    """Check that each snapshot file is complete and has its book; returns their number."""
    count = 0
    for instrument in FEEDS:
        files = snapshots.files(log, instrument.venue_id, instrument.market_id)
        for file in files if newest is None else files[-newest:]:
            snapshots.load(file.path, instrument)
        count += len(files)
    return count


def kill_often(tmp, events, kills):
    feeds = [L2Feed(one, n) for n, one in enumerate(FEEDS)]
    write_l2(tmp / "q", events, feeds=feeds, lose={101}, snapshot_every=100, segment_bytes=8192)
    chance = random.Random(1)
    for _ in range(kills):
        process = start(tmp / "q")
        found = check_files(tmp / "q", newest=2)
        deadline = time.monotonic() + 10 + chance.random()
        # Killed in the middle of its work: some files later than it began, at a random moment.
        while process.poll() is None and time.monotonic() < deadline:
            if check_files(tmp / "q", newest=2) > found + chance.randrange(1, 30):
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_files(tmp / "q", newest=20)
    assert start(tmp / "q").wait() == 0
    return check_files(tmp / "q")


def assert_as_if_never_killed(tmp, events):
    for instrument in FEEDS:
        files = snapshots.files(tmp / "q", instrument.venue_id, instrument.market_id)
        last = snapshots.info(files[-1].path)
        for file in random.Random(2).sample(files, min(12, len(files))):
            cold = replay.book_at(tmp / "q", instrument, tw.Seq(file.seq), snapshots=False)
            assert snapshots.info(file.path).book_hash == cold.hash()
        assert last.seq == events - 2  # one record is lost
    (gap,) = GapLedger(tmp / "q").read()
    assert gap.action == "resynced"
    assert not list((tmp / "q" / "snapshots").rglob("*.tmp"))


def test_killed_three_times_it_ends_as_if_never(tmp):
    assert kill_often(tmp, 600, 3) > 100
    assert_as_if_never_killed(tmp, 600)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_thirty_times_it_ends_as_if_never(tmp):
    kill_often(tmp, 3000, 30)
    assert_as_if_never_killed(tmp, 3000)


def test_the_writer_is_never_held_up_by_a_stopped_snapshotter(tmp, eventually):
    """While stopped, it holds nothing that an append, a roll or retention waits for."""
    write_l2(tmp / "q", 50, segment_bytes=8192)
    command = [sys.executable, "-m", "tapewire.cli", "snapshotter", str(tmp / "q")]
    with subprocess.Popen([*command, "--records", "10"], stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: len(snapshots.files(tmp / "q", BTC.venue_id, BTC.market_id)) >= 5)
            process.send_signal(signal.SIGSTOP)
            with tw.open_publisher(tmp / "q") as writer:
                for n in range(2000):
                    writer.append(7, b"x" * 100, timestamp_ns=n)
                assert writer.metrics()["rolls"] > 10
        finally:
            process.kill()
