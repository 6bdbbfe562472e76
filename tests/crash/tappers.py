"""Live feeds and taps in separate processes, to be killed and stopped."""

import contextlib
import os
import signal
import time

import tapewire as tw
from tapewire import archive
from tapewire.archive.day_logs import DayLog, OpenDayLogs
from tapewire.archive.live_queue import LiveQueue
from tapewire.book.gaps import GapLedger
from tests.crash.small_disk import small_disk_or_say_why
from tests.crash.steps import Steps
from tests.support.taps import clean_queue, fill, records_of, write_late

SEGMENT = 32 << 10


def feed(line, queue, step_ns, burst=20, limit=None):
    """Append a burst every millisecond, rolling and retiring, until the parent or a limit."""
    retention = tw.Retention(reader_ttl=0.0)
    with tw.open_publisher(queue, segment_bytes=SEGMENT, retention=retention) as writer:
        line.say("started")
        while limit is None or writer.next_seq < limit:
            write_late(writer, burst, step_ns)
            time.sleep(0.001)
            with contextlib.suppress(TimeoutError):
                line.hear(timeout=0.0001)
                break
        line.say("wrote", writer.next_seq)


def measured_feed(line, queue, records):
    """On each request, append so many records and say how long the slowest append took."""
    retention = tw.Retention(reader_ttl=0.0)
    with tw.open_publisher(queue, segment_bytes=SEGMENT, retention=retention) as writer:
        line.say("started")
        while line.hear() is not None:
            slowest = 0
            for _ in range(records):
                began = time.perf_counter_ns()
                writer.append(1, b"x" * 100)
                slowest = max(slowest, time.perf_counter_ns() - began)
            line.say("wrote", writer.next_seq, slowest, writer.metrics()["rolls"])


def run_tap(line, source, root, follow=True, flush_seconds=0.005, **options):
    """Say "started", run a tap, and say "done" with its report."""
    tap = archive.tap(source, root, flush=archive.Flush(seconds=flush_seconds), **options)
    signal.signal(signal.SIGTERM, lambda *_: tap.stop())
    line.say("started")
    line.say("done", tap.run(follow=follow).to_dict())


def tap_until(line, step, source, root, **options):
    """Run a tap to the end of its queues; it kills itself at the `step`-th step.

    Steps are before and after each sync, rename, append, gap, declaration, opening, close and
    commit.
    """
    Steps(
        step,
        (DayLog, "append"),
        (DayLog, "sync"),
        (GapLedger, "add"),
        (DayLog, "declare"),
        (DayLog, "close"),
        (OpenDayLogs, "get"),
        (LiveQueue, "commit"),
    )
    run_tap(line, source, root, follow=False, flush_seconds=0.0, **options)


def disk_full(line, where, bus):
    """The archive's disk is full: the tap waits, the queue keeps everything, the tap continues."""
    disk = small_disk_or_say_why(line, where)
    root = os.path.join(disk.directory, "archive")
    queue = clean_queue(bus)
    fill(queue, 3000, segment_bytes=SEGMENT)
    disk.fill(leave=4 * SEGMENT)
    tap = archive.tap(queue, root, segment_bytes=SEGMENT)
    freed = []

    def look(report):
        if report.waiting is not None and not freed:
            assert report.records < 3000
            (reader,) = tw.queue.status(queue).readers
            assert reader.lag_records > 0
            disk.free()
            freed.append(True)

    report = tap.run(follow=False, on_look=look)
    assert freed, "the disk was not full"
    assert report.waiting is None
    assert report.clean, report.findings
    assert (report.records, report.sources["okx/BTCUSDT/trades"].already) == (3000, 0)
    (log,) = archive.ls(root)
    assert records_of(os.path.join(root, log.log)) == records_of(queue)
    line.say("ok")


def disk_full_raised(line, where, bus):
    """With on_disk_full="raise" it raises; nothing is committed that is not archived."""
    disk = small_disk_or_say_why(line, where)
    root = os.path.join(disk.directory, "archive")
    queue = clean_queue(bus)
    fill(queue, 3000, segment_bytes=SEGMENT)
    disk.fill(leave=4 * SEGMENT)
    try:
        archive.tap(queue, root, segment_bytes=SEGMENT, on_disk_full="raise").run(follow=False)
    except tw.DiskFull:
        pass
    else:
        raise AssertionError("the disk was not full")
    disk.free()
    report = archive.tap(queue, root).run(follow=False)
    assert report.sources["okx/BTCUSDT/trades"].already > 0
    (log,) = archive.ls(root)
    assert records_of(os.path.join(root, log.log)) == records_of(queue)
    line.say("ok")
