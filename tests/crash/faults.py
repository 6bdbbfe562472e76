"""Child processes with a storage fault; each sends "ok" if all checks passed."""

import contextlib
import errno
import os
import shutil
import time

import numpy as np

import tapewire as tw
from tests.crash import disk
from tests.crash.small_disk import small_disk_or_say_why
from tests.crash.tape import TYPE, Tape, payload_of

SEGMENT = 64 << 10


@contextlib.contextmanager
def raises(*kinds):
    """Like pytest's, for processes that must start quickly."""
    caught = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
        return
    raise AssertionError(f"none of {[kind.__name__ for kind in kinds]} was raised")


def eventually(predicate, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not (result := predicate()):
        assert time.monotonic() < deadline, "condition not met"
        time.sleep(0.001)
    return result


def append_until_full(writer):
    with raises(tw.DiskFull) as caught:
        for _ in range(1_000_000):
            with contextlib.suppress(tw.SegmentNotReady):  # before the worker: that may still fail
                writer.append(TYPE, payload_of(writer.next_seq))
    return caught[0]


def disk_full_and_free_again(line, where, options):
    disk = small_disk_or_say_why(line, where)
    with (
        tw.open_publisher(disk.queue, segment_bytes=SEGMENT, **options) as writer,
        tw.open_subscriber(disk.queue, "reader") as reader,
    ):
        tape = Tape(reader)
        disk.fill(leave=3 * SEGMENT)
        error = append_until_full(writer)
        assert isinstance(error, OSError)
        assert isinstance(error, tw.TapewireError)
        assert error.errno == errno.ENOSPC, error.errno
        assert error.path.startswith(disk.queue), error.path
        count = writer.next_seq
        assert count > 3 * SEGMENT // 1400
        assert tape.to_end() == count, "readers see everything up to it"
        reader.commit()

        append_until_full(writer)  # again, and still no partial record
        assert writer.next_seq == count
        assert tape.to_end() == count
        assert reader.next() is None
        assert writer.metrics()["disk_full"] >= 2
        # The worker tries again periodically, and removes what it could not complete.
        eventually(lambda: not any(name.endswith(".q.tmp") for name in os.listdir(disk.queue)))
        with tw.open_log(disk.queue) as other:
            assert Tape(other).to_end() == count

        disk.free()

        def goes_on():
            # The worker checks for space periodically; until there is some, this raises.
            with contextlib.suppress(tw.DiskFull, tw.SegmentNotReady):
                return writer.append(TYPE, payload_of(writer.next_seq)) == count

        eventually(goes_on)
        for _ in range(500):
            with contextlib.suppress(tw.SegmentNotReady):
                writer.append(TYPE, payload_of(writer.next_seq))
        assert tape.to_end() == writer.next_seq
        writer.flush_sync()
    line.say("ok")


def disk_full_takes_small_records_still(line, where):
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False) as writer:
        disk.fill()
        with raises(tw.DiskFull):
            for _ in range(10):
                writer.append(TYPE, bytes(20_000))
        count = writer.next_seq
        assert writer.append(TYPE, b"this one has room in the segment") == count
    line.say("ok")


def disk_full_in_a_batch(line, where, options):
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, **options) as writer:
        disk.fill(leave=2 * SEGMENT)
        rows = np.arange(4000 * 25, dtype="u8").reshape(4000, 25)  # 200 bytes each, 1 MB in all
        done = 0
        with raises(tw.DiskFull) as caught:
            while done < 4000:
                try:
                    writer.append_batch(TYPE, rows[done:])
                except tw.SegmentNotReady as error:  # before the worker: that may still fail
                    done += error.appended
        done += caught[0].appended
        assert 0 < done < 4000, done
        assert writer.next_seq == done
        disk.free()

        def the_rest():
            with contextlib.suppress(tw.DiskFull, tw.SegmentNotReady):
                return writer.append_batch(TYPE, rows[done : done + 100]) == range(done, done + 100)

        eventually(the_rest)
        with tw.open_log(disk.queue) as reader:
            batch = reader.read_batch()
            assert len(batch) == done + 100
            assert batch.view("V200").tobytes() == rows[: done + 100].tobytes()
    line.say("ok")


def disk_full_in_a_reservation(line, where):
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False) as writer:
        disk.fill()
        writer.append(TYPE, bytes(SEGMENT - 64 - 64 - 128))
        with raises(tw.DiskFull):
            writer.reserve(TYPE, 1000)
        assert writer.append(TYPE, b"no reservation is left open") == 1
    line.say("ok")


def disk_full_at_creating(line, where):
    """What fails on a full disk leaves nothing partial, and works once there is space."""
    disk = small_disk_or_say_why(line, where)
    disk.fill()
    with raises(tw.DiskFull):
        tw.open_publisher(disk.queue, segment_bytes=SEGMENT)
    disk.free()
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT) as writer:
        assert writer.append(TYPE, payload_of(0)) == 0
    line.say("ok")


def disk_full_at_flushing(line, where):
    """Appended records have their blocks: neither syncing nor closing needs more."""
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False) as writer:
        disk.fill()
        writer.append(TYPE, payload_of(0))
        writer.flush_sync()
        writer.append(TYPE, payload_of(1))
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == 2
    line.say("ok")


def disk_full_and_mounted_again(line, where, options):
    """Every append that returned has allocated blocks on the disk, not only reserved ones."""
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, **options) as writer:
        disk.fill(leave=4 * SEGMENT)
        append_until_full(writer)
        while True:  # what still fits into the segment
            try:
                writer.append(TYPE, payload_of(writer.next_seq))
            except (tw.DiskFull, tw.SegmentNotReady):
                break
        count = writer.next_seq
    disk.mount_again()
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == count > 4 * SEGMENT // 1400
    disk.free()
    with tw.open_publisher(disk.queue, **options) as writer:
        assert writer.append(TYPE, payload_of(count)) == count
    line.say("ok")


def disk_full_at_sealing(line, where):
    """The worker that seals has no space for its checkpoint at first."""
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False) as writer:
        writer.append(TYPE, payload_of(0))
        # The other files of the writer's threads get their blocks before the disk is full.
        for name in ("000000000.idx", "stats.meta"):
            path = os.path.join(disk.queue, name)
            eventually(lambda path=path: os.path.exists(path) and os.path.getsize(path))
        disk.fill(leave=SEGMENT)
        while writer.metrics()["rolls"] == 0:
            try:
                writer.append(TYPE, payload_of(writer.next_seq))
            except tw.DiskFull:  # a thread of the writer has taken a block meanwhile
                disk.free()
                disk.fill(leave=SEGMENT)
        eventually(lambda: writer.metrics()["seals"] + writer.metrics()["seal_errors"])
        disk.free()
        writer.append(TYPE, payload_of(writer.next_seq))
        writer.flush_sync()
        count = writer.next_seq
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == count
    line.say("ok")


def disk_full_at_registering(line, where):
    """A new named reader needs a file; an anonymous one needs nothing."""
    disk = small_disk_or_say_why(line, where)
    writer = tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False)
    writer.append(TYPE, payload_of(0))
    disk.fill()
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == 1
    with raises(tw.DiskFull):
        tw.open_subscriber(disk.queue, "new")
    disk.free()
    with tw.open_subscriber(disk.queue, "new") as reader:
        assert Tape(reader).to_end() == 1
        reader.commit()
    writer.close()
    line.say("ok")


def disk_full_at_reopening(line, where, options):
    disk = small_disk_or_say_why(line, where)
    with tw.open_publisher(disk.queue, segment_bytes=SEGMENT, preallocate=False) as writer:
        for _ in range(5):
            writer.append(TYPE, payload_of(writer.next_seq))
    disk.fill()
    try:
        with tw.open_publisher(disk.queue, **options) as writer:
            writer.append(TYPE, payload_of(writer.next_seq))
    except tw.DiskFull:
        pass
    disk.free()
    with tw.open_publisher(disk.queue, **options) as writer:
        count = writer.next_seq
        assert count in (5, 6)
        writer.append(TYPE, payload_of(count))
    with tw.open_log(disk.queue) as reader:
        assert Tape(reader).to_end() == count + 1
    line.say("ok")


# ---- files cut short under their mappings --------------------------------------------------------


def _queue_with(queue, records=20, **options):
    writer = tw.open_publisher(queue, segment_bytes=SEGMENT, **options)
    for _ in range(records):
        writer.append(TYPE, payload_of(writer.next_seq))
    return writer


def _active(queue):
    return os.path.join(queue, "000000000.q")


def cut_under_the_writer(line, queue, size):
    writer = _queue_with(queue)
    os.truncate(_active(queue), size)
    with raises(tw.MappingLost) as caught:
        for _ in range(1000):
            writer.append(TYPE, payload_of(writer.next_seq))
    assert caught[0].path == _active(queue), caught[0].path
    for call in (
        lambda: writer.append(TYPE, b"again"),
        lambda: writer.append_batch(TYPE, [b"a", b"b"]),
        lambda: writer.reserve(TYPE, 10),
        writer.flush_sync,
        writer.flush_async,
    ):
        with raises(tw.MappingLost):
            call()
    writer.metrics()
    with contextlib.suppress(tw.TapewireError):  # it reports what it could not sync
        writer.close()
    assert writer.closed
    line.say("ok")


def cut_under_a_reservation(line, queue):
    writer = _queue_with(queue)
    slot = writer.reserve(TYPE, 5000)
    os.truncate(_active(queue), 0)
    slot.buffer[:] = b"\x55" * 5000  # the touch that the kernel refuses
    with raises(tw.MappingLost):
        slot.commit()
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    line.say("ok")


def cut_under_a_batch(line, queue):
    writer = _queue_with(queue)
    os.truncate(_active(queue), 4096)
    with raises(tw.MappingLost):
        writer.append_batch(TYPE, [bytes(100)] * 100)
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    line.say("ok")


def cut_under_a_reader(line, queue, how):
    _queue_with(queue, records=100).close()
    reader = tw.open_subscriber(queue, "reader")
    held = reader.next()
    while len(held) == 0:
        held = reader.next()
    view = held.payload
    assert any(view)
    os.truncate(_active(queue), 0)
    # The current call raises, or the next one. A seek may open the file again: then the length is
    # what is wrong.
    with raises(tw.MappingLost, tw.CorruptMetadata) as caught:
        match how:
            case "next":
                while reader.next() is not None:
                    pass
            case "iteration":
                list(reader)
            case "batch":
                while len(reader.read_batch()):
                    pass
            case "wait":
                reader.wait(1.0)
            case "seek_seq":
                reader.seek_seq(50)
            case "seek_time":
                reader.seek_time(1)
            case "seek_start":
                reader.seek_start()
            case "seek_end":
                reader.seek_end()
        reader.next()
    assert caught[0].path == _active(queue)
    if not how.startswith("seek"):
        assert isinstance(caught[0], tw.MappingLost), caught[0]
        with raises(tw.MappingLost):
            reader.next()
    assert bytes(view) == bytes(len(view)), "a view held across it shows zeros"
    reader.close()
    line.say("ok")


def cut_under_a_parked_reader(line, queue):
    """The reader waits in another thread while the file is removed."""
    import threading

    writer = _queue_with(queue, records=1)
    reader = tw.open_log(queue)
    reader.next()
    outcome = []

    def wait():
        try:
            outcome.append(reader.wait(20.0))
        except tw.TapewireError as error:
            outcome.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    os.truncate(_active(queue), 0)
    thread.join(20)
    assert outcome == [tw.MappingLost], outcome
    reader.close()
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    line.say("ok")


def cut_control(line, queue):
    writer = _queue_with(queue)
    reader = tw.open_subscriber(queue, "reader")
    os.truncate(os.path.join(queue, "control.meta"), 0)
    with raises(tw.MappingLost):
        writer.append(TYPE, payload_of(writer.next_seq))
    with raises(tw.MappingLost):
        Tape(reader).to_end()
        reader.wait(0.2)
    reader.close()
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    line.say("ok")


def cut_reader_meta(line, queue):
    writer = _queue_with(queue)
    reader = tw.open_subscriber(queue, "reader")
    os.truncate(os.path.join(queue, "readers", "reader.meta"), 0)
    with raises(tw.MappingLost):
        reader.commit()
    assert Tape(reader).to_end() == 20, "reading continues; only the commit fails"
    reader.close()
    writer.close()
    line.say("ok")


def cut_stats(line, queue):
    writer = _queue_with(queue)
    os.truncate(os.path.join(queue, "stats.meta"), 0)
    time.sleep(0.15)  # one beat of the heartbeat thread, which writes there
    assert writer.append(TYPE, payload_of(20)) == 20
    writer.metrics()
    writer.close()
    line.say("ok")


def cut_prepared(line, queue):
    """The segment made ahead is cut before it is used."""
    writer = _queue_with(queue, records=1)
    ahead = os.path.join(queue, "000000001.q")
    eventually(lambda: os.path.exists(ahead))
    os.truncate(ahead, 0)
    with raises(tw.MappingLost) as caught:
        for _ in range(2000):
            writer.append(TYPE, bytes(100))
    assert caught[0].path == ahead, caught[0]
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    line.say("ok")


# ---- the directory is removed -------------------------------------------------------------------


def directory_unlinked(line, queue, preallocate):
    writer = _queue_with(queue, preallocate=preallocate, retention=tw.Retention(reader_ttl=0.01))
    reader = tw.open_subscriber(queue, "reader")
    disk.await_beats(queue)
    os.rename(queue, queue + "-gone")  # at once: its threads would create files again
    shutil.rmtree(queue + "-gone")
    assert reader.detect_disconnect() is tw.DisconnectReason.SEGMENT_MISSING
    assert Tape(reader).to_end() == 20, "what is mapped can be read"
    assert writer.append(TYPE, payload_of(20)) == 20
    assert reader.next().seq == 20
    reader.commit()
    assert reader.wait(0.01) is False
    with raises(tw.TapewireError) as caught:
        for _ in range(3):
            writer.append_batch(TYPE, [bytes(1000)] * 100)
    # No file can be made there; or a heartbeat has seen before that the lock files are gone.
    assert isinstance(caught[0], OSError | tw.LockLost), caught[0]
    with raises(tw.TapewireError):
        writer.flush_sync()
    with contextlib.suppress(tw.SegmentMissing, FileNotFoundError):
        for _ in reader:
            pass
    with contextlib.suppress(tw.TapewireError):
        reader.seek_start()
    reader.close()
    with contextlib.suppress(tw.TapewireError):
        writer.close()
    assert writer.closed
    with raises(FileNotFoundError):
        tw.open_subscriber(queue, "reader")
    line.say("ok")
