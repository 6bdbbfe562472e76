"""The child processes of the crash tests, each of which runs until it is killed."""

import contextlib
import ctypes
import mmap
import os
import random
import resource
import select
import struct
import time
from pathlib import Path

import numpy as np

import tapewire as tw
from tests.crash.tape import LONGEST, TYPE, Board, Tape, payload_of

# Words of the board. Each reader has its own row after the writer's words.
ACKED = 0  # one more than the number of the last append that returned
FLUSHED = 1  # next_seq at the call of the last flush_sync that returned
OPENED = 2  # how often the writer was opened
OPENED_AT = 3  # next_seq right after opening
FULL = 4  # how often the queue was full
READER_ROW = 16
ABOUT, COMMITTED, BEGAN, MISSED = range(4)  # in a reader's row

WAITERS = 388 // 4  # waiters_pending, as a word of control.meta


def options_of(episode):
    """The writer's options from the plain values sent through the pipe."""
    options = dict(episode)
    if "retention" in options:
        options["retention"] = tw.Retention(**options["retention"])
    if "flush" in options:
        options["flush"] = tw.FlushEvery(**options["flush"])
    if "block" in options:
        options["when_full"] = tw.Block(options.pop("block"))
    return options


def append_one(writer, rng):
    writer.append(TYPE, payload_of(writer.next_seq))


def append_some(writer, rng):
    first = writer.next_seq
    writer.append_batch(TYPE, [payload_of(first + i) for i in range(rng.randrange(1, 60))])


def append_rows(writer, rng):
    """A batch of one numpy row, for a sequence number whose payload is not empty."""
    payload = payload_of(writer.next_seq)
    if payload:
        writer.append_batch(TYPE, np.frombuffer(payload, np.uint8).reshape(1, -1))


def append_reserved(writer, rng):
    payload = payload_of(writer.next_seq)
    spare = rng.choice([0, 1, 64, 300])
    slot = writer.reserve(TYPE, len(payload) + spare)
    slot.buffer[len(payload) :] = b"\xaa" * spare
    slot.buffer[: len(payload)] = payload
    slot.commit(len(payload))


def abort_reserved(writer, rng):
    slot = writer.reserve(TYPE, rng.randrange(LONGEST))
    slot.buffer[:] = b"\xbb" * len(slot.buffer)
    slot.abort()


OPERATIONS = (
    [append_one] * 60
    + [append_some] * 6
    + [append_rows, append_reserved] * 8
    + [abort_reserved] * 3
)


def writer(line, queue, board, seed, episode):
    """Append indefinitely through all calls, and record each return."""
    rng = random.Random(seed)
    words = Board(board).words
    with tw.open_publisher(queue, **options_of(episode)) as w:
        words[OPENED_AT] = w.next_seq
        words[OPENED] += 1
        while True:
            try:
                rng.choice(OPERATIONS)(w, rng)
            except (tw.QueueFull, tw.SegmentNotReady):
                words[FULL] += 1
            words[ACKED] = w.next_seq
            if rng.random() < 0.004:
                upto = w.next_seq
                w.flush_sync()
                words[FLUSHED] = upto
            elif rng.random() < 0.004:
                w.flush_async()


def reader(line, queue, board, row, name, seed, pinned):
    """Read indefinitely, commit now and then, and check that it resumed after its last commit."""
    rng = random.Random(seed)
    words = Board(board).words[READER_ROW + 8 * row : READER_ROW + 8 * row + 8]
    reader = None
    while reader is None:
        try:
            reader = tw.open_subscriber(queue, name, pinned=pinned, create_timeout=10.0)
        except tw.SegmentMissing as missing:
            if pinned or missing.first_available_seq < words[COMMITTED]:
                raise
            words[MISSED] += 1
            reader = tw.open_subscriber(queue, name, start="earliest")
            reader.commit()
            words[ABOUT] = words[COMMITTED] = 0
    tape = Tape(reader)

    def take(record):
        if tape.expected is None and words[ABOUT] != 0:
            assert words[COMMITTED] <= record.seq <= words[ABOUT], (
                f"resumed at {record.seq}, committed up to {words[COMMITTED]}, about {words[ABOUT]}"
            )
        tape.take(record)

    words[BEGAN] += 1
    while True:
        try:
            if rng.random() < 0.5:
                for record in reader.read_batch(rng.randrange(1, 200)):
                    take(record)
            else:
                for _ in range(rng.randrange(1, 50)):
                    if (record := reader.next()) is None:
                        break
                    take(record)
            if tape.expected is not None and rng.random() < 0.3:
                words[ABOUT] = tape.expected
                reader.commit()
                words[COMMITTED] = tape.expected
            reader.wait(0.05)
        except tw.SegmentMissing:
            if pinned:
                raise
            words[MISSED] += 1
            reader.seek_start()
            tape.expected = None
            words[ABOUT] = 0


def appender(line, queue, **options):
    """Execute commands, ["append", n], ["close"], …, and send the next sequence number."""
    with tw.open_publisher(queue, **options_of(options)) as w:
        line.say("open", w.next_seq)
        while (order := line.hear(timeout=300)) is not None:
            match order:
                case ["append", count]:
                    for _ in range(count):
                        w.append(TYPE, payload_of(w.next_seq))
                case ["append", count, size]:
                    data = bytes(size)
                    for _ in range(count):
                        w.append(TYPE, data)
                case ["reserve", size, filling]:
                    slot = w.reserve(TYPE, size)
                    slot.buffer[:] = bytes.fromhex(filling) * size
                case ["close"]:
                    break
            line.say("done", w.next_seq, w.metrics())


def parker(line, queue, name=None, start="earliest", spin_us=0.0, checked=True):
    """Read to the end and report it, then wait; send each sequence number read."""
    with tw.open_subscriber(
        queue, name or "parker", start=start, wait=tw.SpinThenPark(spin_us), create_timeout=10.0
    ) as reader:
        tape = Tape(reader)
        line.say("open")
        for record in reader.follow():
            if checked:
                tape.take(record)
            line.say("read", record.seq, len(record))


def ticker(line, queue, pause_s):
    """Append records periodically until asked to stop; send their count."""
    with tw.open_publisher(queue, segment_bytes=64 << 10) as writer:
        line.say("open")
        while not select.select([line], [], [], pause_s)[0]:
            writer.append(TYPE, payload_of(writer.next_seq))
        line.say("appended", writer.next_seq)


def roller(line, queue, rolls):
    """Each append leaves 64 bytes of its segment, then 0, while the reader is about to sleep."""
    with open(Path(queue) / "control.meta", "rb") as file:
        words = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)).cast("I")
    room = 8192 - 64
    payloads = [bytes(room - 64 - 64), bytes(room - 64)]
    with tw.open_publisher(queue, index_stride=1) as w:
        line.say("open", w.next_seq)
        line.hear()
        parked = 0
        for i in range(rolls):
            patience = 20_000
            while words[WAITERS] == 0 and patience:
                os.sched_yield()
                patience -= 1
            parked += words[WAITERS]
            w.append(TYPE, payloads[i % 2])
        line.say("done", w.next_seq, parked, w.metrics())
        line.hear()


def counter(line, queue, expected):
    """Read so many records, parking whenever there is none."""
    with tw.open_subscriber(queue, "counter", wait=tw.SpinThenPark(0)) as reader:
        line.say("open")
        for seq in range(expected):
            while (record := reader.next()) is None:
                reader.wait()
            assert record.seq == seq, f"expected {seq}, got {record.seq}"
            assert len(record) == (8000 if seq % 2 == 0 else 8064)
        line.say("done", reader.next() is None)


def faulter(line, queue, segment_bytes, rolls):
    """Append over so many prepared rolls; the page faults of this thread, per stretch."""
    payload = bytes(64)
    path = Path(queue)
    # The complete segment in advance, not in steps by the writer's rate.
    options = {"require_prealloc": True, "prealloc_wait": 1.0}
    with tw.open_publisher(queue, segment_bytes=segment_bytes, **options) as w:

        def await_prepared():
            # The current segment is populated before the next one is made.
            number = struct.unpack_from("<I", (path / "control.meta").read_bytes(), 132)[0] + 1
            while not (path / f"{number:09d}.q").exists():
                time.sleep(0.0005)

        def measured(count):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for _ in range(count):
                w.append(TYPE, payload)
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        await_prepared()
        per_segment = (segment_bytes - 64) // 128
        measured(per_segment // 4)  # a forked interpreter copies its own pages on first write
        stretches = []
        while w.metrics()["rolls"] < rolls or not stretches:
            await_prepared()
            stretches += [measured(per_segment // 16) for _ in range(8)]
        metrics = w.metrics()
        appends = len(stretches) * (per_segment // 16)
        line.say("faults", stretches, appends, metrics["rolls"], metrics["prealloc_ready"])


def nothing(line):
    """A pid that is free soon."""


def renamed_appender(line, queue, name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
    appender(line, queue)


def left_behind(queue):
    with open("/proc/self/maps") as file:
        mappings = [text for text in file if queue in text]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": mappings,
        "threads": len(os.listdir("/proc/self/task")),
    }


def opener(line, queue, times):
    """Open, use and close writers and readers, over rolls, with every kind of worker.

    Batches are exported to Arrow: some are consumed, others left in unused capsules.
    """
    import pyarrow as pa  # has a thread of its own

    def once():
        options = {"retention": tw.Retention(), "flush": tw.FlushEvery(records=1)}
        with tw.open_publisher(queue, segment_bytes=8192, **options) as w:
            with tw.open_subscriber(queue, "named") as named, tw.open_log(queue) as anonymous:
                w.append_batch(TYPE, [bytes(200)] * 60)
                records = named.read_batch()
                kept = anonymous.next().payload
                named.commit()
            records.__arrow_c_array__()
            records.__arrow_c_stream__()
            taken = pa.record_batch(records[10:])
        assert len(records) >= 60
        assert len(kept) == 200
        assert len(taken["payload"][0].as_py()) == 200  # with everything closed

    before = left_behind(queue)
    for _ in range(times):
        once()
    line.say("left", before, left_behind(queue))


def failing_opener(line, queue, times):
    """Calls of open that fail in the middle."""
    holder = tw.open_publisher(queue, segment_bytes=8192)
    holder.append(TYPE, b"x")
    holder.close()

    def once():
        for options in ({"segment_bytes": 16384}, {"sparse": True}, {"first_seq": 9}):
            try:
                tw.open_publisher(queue, **options)
            except tw.InvalidOption:
                continue
            raise AssertionError(f"{options} were not refused")
        for name, start in (("../x", "resume"), ("r", "never")):
            try:
                tw.open_subscriber(queue, name, start=start)
            except ValueError:
                continue
            raise AssertionError(f"{name}, {start} were not refused")

    once()
    before = left_behind(queue)
    for _ in range(times):
        once()
    line.say("left", before, left_behind(queue))


def hurried_roller(line, queue, rolls):
    """Roll with every record and read each one back; retention deletes old segments."""
    options = {"segment_bytes": 8192, "retention": tw.Retention(), "prealloc_wait": 0.00002}
    with (
        tw.open_publisher(queue, **options) as w,
        tw.open_subscriber(queue, "reader", pinned=True) as reader,
    ):
        data = bytes(7000)
        for seq in range(rolls):
            if seq % 3 == 0:
                with w.reserve(TYPE, len(data)) as slot:  # leaves the new segment empty for a while
                    slot[:8] = seq.to_bytes(8, "little")
            else:
                w.append(TYPE, seq.to_bytes(8, "little") + data[8:])
            record = reader.next()
            assert record is not None, f"{seq} is not there"
            assert (record.seq, int.from_bytes(record.payload[:8], "little")) == (seq, seq)
            if seq % 50 == 0:
                reader.commit()
        line.say("done", w.next_seq, w.metrics())


def burner(line):
    """Keep a core busy, so that other processes are preempted at any instruction."""
    line.say("burning")
    while True:
        pass


def reopener(line, queue, times):
    """Repeatedly open a writer that requires the next segment, and roll three times."""
    for _ in range(times):
        with tw.open_publisher(queue, segment_bytes=8192, require_prealloc=True) as w:
            goal = w.next_seq + 90
            while w.next_seq < goal:
                with contextlib.suppress(tw.SegmentNotReady):
                    w.append(TYPE, payload_of(w.next_seq))
    line.say("done", goal)
