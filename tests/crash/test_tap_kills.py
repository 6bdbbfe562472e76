"""A tap that is killed, stopped or out of space loses, duplicates and blocks nothing."""

import os
import random
import shutil
import signal
import time

import pytest

import tapewire as tw
from tapewire import archive
from tapewire.book.gaps import GapLedger
from tapewire.protocol import types_file
from tests.crash.small_disk import FILESYSTEMS
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.taps import (
    DAY_NS,
    MIDNIGHT_NS,
    all_archived,
    archived,
    clean_queue,
    late_key,
    run_once,
)

STEP_NS = DAY_NS // 3000


def survives_kills(crew, tmp, eventually, kills, seed):
    """Meanwhile the live queue is written, and it rolls and retires segments."""
    queue = clean_queue(tmp / "bus")
    rng = random.Random(seed)
    feed = crew.start("tappers.feed", queue=str(queue), step_ns=STEP_NS)
    feed.expect("started")
    for kill in range(kills):
        tap = crew.start("tappers.run_tap", source=str(tmp / "bus"), root=str(tmp / "archive"))
        tap.expect("started")
        if kill == kills // 2:  # on a busy machine the feed may be slow
            eventually(lambda: tw.queue.status(queue).first_available_seq > 0, timeout=60)
        time.sleep(rng.uniform(0, 0.08))  # at any point of its work
        assert tap.kill() == -9
    feed.say("end")
    (count,) = feed.expect("wrote")
    assert feed.wait() == 0
    report = run_once(tmp / "bus", tmp / "archive")
    assert report.clean, report.findings
    assert all_archived(tmp / "archive") == [late_key(seq, STEP_NS) for seq in range(count)]
    assert archive.verify(tmp / "archive").intact


def test_two_kills_at_random_lose_and_repeat_nothing(crew, tmp, eventually):
    survives_kills(crew, tmp, eventually, kills=2, seed=3)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_kills_at_random_lose_and_repeat_nothing(crew, tmp, eventually, seed):
    survives_kills(crew, tmp, eventually, kills=100, seed=seed)


def small_bus(tmp):
    """A queue with two days, late records, a gap and a declared message."""
    numbers = [n for n in range(40) if n not in (17, 18)]
    records = [
        qf.record(n, b"%d" % n, timestamp_ns=MIDNIGHT_NS + (n // 20 - (n % 10 == 3)) * DAY_NS + n)
        for n in numbers
    ]
    queue = clean_queue(tmp / "bus")
    queue.parent.mkdir(parents=True)
    crafted.write(tmp, records)
    (tmp / "q").rename(queue)

    @tw.message(0x2001)
    class Order:
        price: tw.i64

    types_file.merge(queue, [Order.layout()])
    return tmp / "bus"


def content(root):
    ledgers = {
        one.log: [(gap.first, gap.last) for gap in GapLedger(root / one.log).read()]
        for one in archive.ls(root)
    }
    types = {one.log: types_file.read(root / one.log) for one in archive.ls(root)}
    return archived(root), ledgers, types


def killed_at_each_step(crew, tmp, every):
    bus = small_bus(tmp)
    shutil.copytree(bus, tmp / "complete-bus")
    assert run_once(tmp / "complete-bus", tmp / "complete").gaps == 1
    want = content(tmp / "complete")
    step = 1
    while True:
        source, root = tmp / f"bus-{step}", tmp / f"archive-{step}"
        shutil.copytree(bus, source)
        child = crew.start("tappers.tap_until", step=step, source=str(source), root=str(root))
        child.expect("started")
        if (ended := child.wait()) == 0:
            return step
        assert ended == -9, child.last_words()
        run_once(source, root)
        assert content(root) == want, f"killed at step {step}"
        shutil.rmtree(root)
        shutil.rmtree(source)
        step += every


def test_a_kill_at_any_sync_append_or_commit_changes_nothing(crew, tmp, own_messages):
    assert killed_at_each_step(crew, tmp, every=19) > 60


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_every_single_step_changes_nothing(crew, tmp, own_messages):
    assert killed_at_each_step(crew, tmp, every=1) > 60


def test_a_stopped_tap_delays_retention_and_nothing_else(crew, tmp, eventually):
    queue = clean_queue(tmp / "bus")
    feed = crew.start("tappers.measured_feed", queue=str(queue), records=5000)
    feed.expect("started")
    tap = crew.start("tappers.run_tap", source=str(tmp / "bus"), root=str(tmp / "archive"))
    tap.expect("started")
    feed.say("go")
    count, _, rolls = feed.expect("wrote")
    assert rolls > 10
    eventually(lambda: tw.queue.status(queue).first_available_seq > count // 2)

    os.kill(tap.pid, signal.SIGSTOP)
    (before,) = tw.queue.status(queue).readers
    with tw.open_subscriber(queue, "strategy", start="latest") as other:
        feed.say("go")
        count, _, more = feed.expect("wrote")
        assert more > rolls + 10, "the writer continues to roll"
        seen = 0
        while len(batch := other.read_batch()):
            seen += len(batch)
        assert seen == 5000, "other readers continue"
    stopped = next(r for r in tw.queue.status(queue).readers if r.name == "archive-tap")
    assert stopped.next_seq == before.next_seq
    assert tw.queue.status(queue).first_available_seq <= before.next_seq, "kept for the tap"

    os.kill(tap.pid, signal.SIGCONT)
    eventually(lambda: tw.queue.status(queue).first_available_seq > count - 2500)
    tap.kill(signal.SIGTERM)
    (done,) = tap.expect("done")
    assert (done["records"], done["clean"]) == (count, True)


def test_a_second_tap_at_the_same_time_is_refused(crew, tmp, eventually):
    queue = clean_queue(tmp / "bus")
    feed = crew.start("tappers.feed", queue=str(queue), step_ns=STEP_NS, limit=2000)
    feed.expect("started")
    tap = crew.start("tappers.run_tap", source=str(tmp / "bus"), root=str(tmp / "archive"))
    tap.expect("started")
    feed.expect("wrote")
    feed.wait()
    eventually(lambda: tw.queue.status(queue).readers)  # it has the reader's name
    with pytest.raises(tw.ReaderAlreadyActive):
        run_once(tmp / "bus", tmp / "archive")
    tap.kill(signal.SIGTERM)
    run_once(tmp / "bus", tmp / "archive")
    assert all_archived(tmp / "archive") == [late_key(seq, STEP_NS) for seq in range(2000)]


@pytest.mark.parametrize("actor", ["disk_full", "disk_full_raised"])
@pytest.mark.parametrize(
    "filesystem",
    [pytest.param(n, marks=pytest.mark.root) if n == "ext4" else n for n in FILESYSTEMS],
)
def test_a_full_disk_of_the_archive_loses_nothing(crew, tmp, filesystem, actor):
    (tmp / "small").mkdir()
    where = {"filesystem": filesystem, "directory": str(tmp / "small")}
    child = crew.start(f"tappers.{actor}", where=where, bus=str(tmp / "bus"))
    word, *rest = child.line.hear()
    if word == "unable":
        pytest.skip(f"cannot mount a small {filesystem} (needs root): {rest[0]}")
    assert word == "ok", rest[0]
