"""The recorded programs: writers of every kind, which announce each step.

Run as a program under the recorder: `python -m tests.crash.recorded_runs QUEUE RUN SEED PART`.
"""

import contextlib
import ctypes
import json
import random
import sys
import time

import numpy as np

import tapewire as tw
from tests.crash.aftermath import follow
from tests.support.entries import BASE_NS

SEGMENT = 16384

# Options of the writer; what the run does besides appending.
RUNS = {
    "plain": {},
    "sealed in step": {"defer_seal_sync": False},
    "made when needed": {"preallocate": False},
    "careful": {"preallocate": False, "defer_seal_sync": False},
    "required": {"require_prealloc": True},
    "flushed in steps": {"flush": {"records": 12}},
    "sparse": {"sparse": True, "first_seq": 7},
    "small segments": {"segment_bytes": 8192, "index_stride": 2, "first_seq": 100},
    "retained": {"retention": {"reader_ttl": 60.0}, "segment_bytes": 8192},
    "retained, made when needed": {
        "retention": {"reader_ttl": 60.0},
        "segment_bytes": 8192,
        "preallocate": False,
    },
    "reopened": {"index_stride": 3},
    "killed": {"parts": 3},
    "killed, made when needed": {"parts": 3, "preallocate": False, "segment_bytes": 8192},
}
# Not in RUNS: they begin with the image of an earlier power failure.
AGAIN = {"again": {}, "again, made when needed": {"preallocate": False}}


def options_of(run):
    options = dict({**RUNS, **AGAIN}[run])
    options.pop("parts", None)
    if "retention" in options:
        options["retention"] = tw.Retention(**options["retention"])
    if "flush" in options:
        options["flush"] = tw.FlushEvery(**options["flush"])
    if run not in AGAIN:
        options.setdefault("segment_bytes", SEGMENT)
    return options


_recorder = ctypes.CDLL(None)


def note(**what):
    _recorder.recorder_note(json.dumps(what).encode())


class Script:
    """One writer's life: random steps, announced before, and the files recorded after."""

    def __init__(self, queue, options, rng):
        self.queue = queue
        self.options = options
        self.rng = rng
        self.open()
        self.largest_payload = self.writer.segment_bytes - 128
        self.largest = 4000 if self.rng.random() < 0.5 else 900

    def open(self):
        self.writer = tw.open_publisher(self.queue, **self.options)

    def close(self):
        upto = self.writer.next_seq
        self.writer.close()
        note(acked=upto)

    def size(self):
        kind = self.rng.random()
        if kind < 0.12:
            return 0
        if kind < 0.16:
            return self.rng.randrange(self.largest_payload + 1)
        return self.rng.randrange(self.largest if kind < 0.4 else 200)

    def announce(self, count, seq=None, size=None):
        """The fields of the next records, announced before any of them is stored."""
        first = self.writer.next_seq if seq is None else seq
        type_id, flags = self.rng.randrange(1, 0xFFFF), self.rng.randrange(256) << 8
        fields = [
            [first + i, BASE_NS + self.rng.randrange(10**9), type_id, flags] for i in range(count)
        ]
        payloads = [self.rng.randbytes(self.size() if size is None else size) for _ in range(count)]
        note(about=[[*f, p.hex()] for f, p in zip(fields, payloads, strict=True)])
        return fields, payloads

    def append(self, size=None):
        seq = None
        if self.writer.sparse and self.rng.random() < 0.4:
            seq = self.writer.next_seq + self.rng.randrange(1, 50)
        [(_, at, type_id, flags)], [payload] = self.announce(1, seq, size)
        given = {} if seq is None else {"seq": seq}
        self.insist(
            lambda: self.writer.append(type_id, payload, timestamp_ns=at, flags=flags, **given)
        )

    def append_batch(self):
        fields, payloads = self.announce(self.rng.randrange(1, 9))
        times = np.array([f[1] for f in fields], np.int64)
        first, (*_, type_id, flags) = self.writer.next_seq, fields[0]

        def rest():  # a batch that has no next segment has appended a part
            done = self.writer.next_seq - first
            self.writer.append_batch(
                type_id, payloads[done:], timestamps_ns=times[done:], flags=flags
            )

        self.insist(rest)

    def reserve(self):
        [(_, at, type_id, flags)], [payload] = self.announce(1)
        spare = self.rng.choice([0, 1, 64, 300])
        room = min(len(payload) + spare, self.largest_payload)
        slot = self.insist(lambda: self.writer.reserve(type_id, room, timestamp_ns=at, flags=flags))
        slot.buffer[:] = b"\xaa" * room
        note(step="reserved")
        slot.buffer[: len(payload)] = payload
        slot.commit(len(payload))

    def abort(self):
        slot = self.insist(lambda: self.writer.reserve(9, self.size()))
        slot.buffer[:] = b"\xbb" * len(slot.buffer)
        note(step="reserved")
        slot.abort()

    def flush(self):
        upto = self.writer.next_seq
        self.writer.flush_sync()
        note(acked=upto)

    def pause(self):
        """Time for the threads: to prepare, seal, flush and index."""
        self.writer.flush_async()
        before, upto = self.writer.metrics()["flushes"], self.writer.next_seq
        time.sleep(0.004)
        # The second flush from here on began after `upto` was appended.
        if "flush" in self.options and self.writer.metrics()["flushes"] >= before + 2:
            note(acked=upto)

    def insist(self, step):
        """A roll that waits for its sync acknowledges the records before it."""
        rolls, upto = self.writer.metrics()["rolls"], self.writer.next_seq
        while True:
            try:
                done = step()
                break
            except tw.SegmentNotReady:
                time.sleep(0.001)
        in_step = not self.options.get("defer_seal_sync", True)
        note(**({"acked": upto} if in_step and self.writer.metrics()["rolls"] > rolls else {}))
        return done

    def run(self, steps):
        weights = [
            (self.append, 0.65),
            (self.append_batch, 0.1),
            (self.reserve, 0.06),
            (self.abort, 0.04),
            (self.flush, 0.05),
            (self.pause, 0.1),
        ]
        for _ in range(steps):
            self.rng.choices(*zip(*weights, strict=True))[0]()
            yield


def read_and_commit(readers, rng):
    for reader in readers:
        if rng.random() < 0.3:
            follow(reader, rng.randrange(40))
            reader.commit()
            note(step="committed")


def report_content(queue):
    with tw.open_log(queue) as reader:
        note(holds=[[*e[:4], e.payload.hex()] for e in follow(reader).shown])


def main(queue, run, seed, part):
    rng = random.Random(f"{run}/{seed}/{part}")
    options = options_of(run)
    parts = RUNS[run].get("parts", 1) if run in RUNS else 1
    script = Script(queue, options, rng)
    note(options={"sparse": script.writer.sparse, "retention": "retention" in options})
    if run in AGAIN:
        report_content(queue)
    pinned = "retention" in options
    names = ("three", "four") if run in AGAIN else ("one", "two")
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(tw.open_subscriber(queue, name, pinned=pinned)) for name in names
        ]
        if part:
            script.flush()  # also of records of the killed writer
        for _ in script.run(rng.randrange(60, 100) if parts == 1 else rng.randrange(15, 40)):
            read_and_commit(readers, rng)
            if run == "reopened" and rng.random() < 0.06:
                script.close()
                script.open()
        if part + 1 < parts:
            for _ in range(8):  # over rolls whose segments no thread has time to sync
                script.append(3000)
            if rng.random() < 0.5:
                slot = script.writer.reserve(9, 200)
                slot.buffer[:100] = b"\xcc" * 100
            _recorder.recorder_kill()
        if rng.random() < 0.7:
            script.flush()
        if rng.random() < 0.5:
            script.close()
        else:
            _recorder.recorder_kill()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
