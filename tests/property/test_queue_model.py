"""A queue compared with a plain list: any order of calls, tiny segments, several named readers."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tapewire as tw
from tests.support.entries import BASE_NS, Entry, entries, entry, first_at_or_after

SEGMENT = 8192
SHM = Path("/dev/shm")

# Sizes around the 64-byte grid and around a complete segment, where rolls fail first.
sizes = st.one_of(
    st.integers(0, 200),
    st.sampled_from([0, 63, 64, 65, 127, 128, 3968, 4000, 7936, 8000, 8063, 8064]),
)
type_ids = st.integers(1, 3)
flags = st.sampled_from([0, 0x0100, 0xFF00])
# Close together and out of order, so that seeks meet equal and falling times.
times = st.integers(BASE_NS, BASE_NS + 50)
names = st.sampled_from(["a", "b", "c"])
few = st.integers(0, 40)


def fill(number, size):
    return (b"%08d" % number * (size // 8 + 1))[:size]


class ReaderModel:
    """A reader and the index of the record that it gives next."""

    def __init__(self, name, handle, at, types):
        self.name = name
        self.handle = handle
        self.at = at
        self.types = types


class QueueMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    def __init__(self):
        super().__init__()
        root = SHM if SHM.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="tapewire-test-", dir=root))
        self.path = self.directory / "q"
        self.log = []
        self.committed = {}  # name -> index of the record after its commit
        self.open = {}
        self.writer = None

    def teardown(self):
        for reader in self.open.values():
            reader.handle.close()
        if self.writer is not None:
            self.writer.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- the writer

    @initialize(
        sparse=st.booleans(),
        first_seq=st.sampled_from([0, 1, 1000]),
        stride=st.sampled_from([1, 3, 4096]),
        preallocate=st.booleans(),
    )
    def create(self, sparse, first_seq, stride, preallocate):
        self.sparse = sparse
        self.next_seq = first_seq
        self.options = {"index_stride": stride, "preallocate": preallocate}
        self.writer = tw.open_publisher(
            self.path, segment_bytes=SEGMENT, first_seq=first_seq, sparse=sparse, **self.options
        )

    def remember(self, seq, time, type_id, flag, payload):
        self.log.append(Entry(seq, time, type_id, flag, payload))
        self.next_seq = seq + 1

    @rule(size=sizes, type_id=type_ids, flag=flags, time=times, skip=st.integers(0, 3))
    def append(self, size, type_id, flag, time, skip):
        payload = fill(len(self.log), size)
        seq = self.next_seq + skip if self.sparse and skip else None
        got = self.writer.append(type_id, payload, timestamp_ns=time, flags=flag, seq=seq)
        assert got == (self.next_seq if seq is None else seq)
        self.remember(got, time, type_id, flag, payload)

    @rule(rows=st.lists(st.tuples(sizes, type_ids, times), max_size=30), skips=st.booleans())
    def append_batch(self, rows, skips):
        payloads = [fill(len(self.log) + i, size) for i, (size, _, _) in enumerate(rows)]
        numbers = None
        expected = range(self.next_seq, self.next_seq + len(rows))
        if self.sparse and skips:
            expected = numbers = [self.next_seq + 1 + 2 * i for i in range(len(rows))]
        got = self.writer.append_batch(
            [type_id for _, type_id, _ in rows],
            payloads,
            timestamps_ns=[time for _, _, time in rows],
            seqs=numbers,
        )
        assert list(got) == list(expected)
        for seq, payload, (_, type_id, time) in zip(expected, payloads, rows, strict=True):
            self.remember(seq, time, type_id, 0, payload)

    @rule(size=sizes, used=st.integers(0, 8064), time=times)
    def reserve_and_commit(self, size, used, time):
        payload = fill(len(self.log), size)
        slot = self.writer.reserve(1, size, timestamp_ns=time)
        slot.buffer[:] = payload
        used = min(used, size)
        assert slot.commit(used) == self.next_seq
        self.remember(self.next_seq, time, 1, 0, payload[:used])

    @rule(size=sizes)
    def reserve_and_abort(self, size):
        slot = self.writer.reserve(1, size)
        slot.buffer[:] = b"\xff" * size
        slot.abort()

    @rule(sync=st.booleans())
    def flush(self, sync):
        self.writer.flush_sync() if sync else self.writer.flush_async()

    @rule()
    def reopen_writer(self):
        self.writer.close()
        self.writer = tw.open_publisher(self.path, **self.options)
        assert self.writer.sparse is self.sparse

    @rule(size=st.integers(8065, 20_000))
    def too_large(self, size):
        with pytest.raises(tw.PayloadTooLarge):
            self.writer.append(1, bytes(size))

    @invariant()
    def the_next_number_is_right(self):
        if self.writer is not None:
            assert self.writer.next_seq == self.next_seq

    # ---- readers

    def after_committed(self, name):
        return self.committed.get(name, 0)

    @rule(
        target=readers,
        name=names,
        start=st.sampled_from(["resume", "earliest", "latest", "seq", "time"]),
        types=st.sampled_from([None, None, {1}, {2, 3}]),
        seq=few,
        time=times,
    )
    def open_reader(self, name, start, types, seq, time):
        if name in self.open:
            with pytest.raises(tw.ReaderAlreadyActive):
                tw.open_subscriber(self.path, name)
            return multiple()
        wanted = {"seq": tw.Seq(seq), "time": tw.Time(time)}.get(start, start)
        at = {
            "resume": self.after_committed(name),
            "earliest": 0,
            "latest": len(self.log),
            "seq": self.index_of_seq(seq),
            "time": self.index_of_time(time),
        }[start]
        handle = tw.open_subscriber(self.path, name, start=wanted, types=types)
        # A new name is registered at its start position.
        self.committed.setdefault(name, at)
        reader = ReaderModel(name, handle, at, types)
        self.open[name] = reader
        return reader

    @rule(reader=consumes(readers), forget=st.booleans())
    def close_reader(self, reader, forget):
        reader.handle.close(forget=forget)
        del self.open[reader.name]
        if forget:
            del self.committed[reader.name]

    def index_of_seq(self, seq):
        return next((i for i, e in enumerate(self.log) if e.seq >= seq), len(self.log))

    def index_of_time(self, time):
        return first_at_or_after([e.timestamp_ns for e in self.log], time)

    def ahead(self, reader):
        """``(index, entry)`` of the records that this reader has yet to return."""
        return [
            (i, e)
            for i, e in enumerate(self.log)
            if i >= reader.at and (reader.types is None or e.type_id in reader.types)
        ]

    @rule(reader=readers)
    def next(self, reader):
        ahead = self.ahead(reader)
        record = reader.handle.next()
        if not ahead:
            assert record is None
            reader.at = len(self.log)
            return
        index, expected = ahead[0]
        assert entry(record) == expected
        assert reader.handle.last_seq == expected.seq
        reader.at = index + 1

    @rule(reader=readers, most=few)
    def read_batch(self, reader, most):
        ahead = self.ahead(reader)
        got = entries(reader.handle.read_batch(most))
        assert got == [e for _, e in ahead[:most]]
        if len(ahead) >= most:
            reader.at = ahead[most - 1][0] + 1 if most else reader.at
        else:
            reader.at = len(self.log)

    @rule(reader=readers)
    def wait(self, reader):
        ahead = self.ahead(reader)
        assert reader.handle.wait(0) is bool(ahead)
        # A search for a wanted type skips the others, and a commit may include those.
        reader.at = ahead[0][0] if ahead else len(self.log)

    @rule(reader=readers)
    def commit(self, reader):
        reader.handle.commit()
        self.committed[reader.name] = reader.at

    @rule(reader=readers, shift=st.integers(-3, 3), pick=st.integers(0, 10**6))
    def seek_seq(self, reader, shift, pick):
        base = self.log[pick % len(self.log)].seq if self.log else 0
        wanted = max(0, base + shift)
        reader.at = self.index_of_seq(wanted)
        assert reader.handle.seek_seq(wanted) is (reader.at < len(self.log))

    @rule(reader=readers, time=st.integers(BASE_NS - 1, BASE_NS + 51))
    def seek_time(self, reader, time):
        reader.at = self.index_of_time(time)
        assert reader.handle.seek_time(time) is (reader.at < len(self.log))

    @rule(reader=readers)
    def seek_start(self, reader):
        reader.at = 0
        assert reader.handle.seek_start() is bool(self.log)

    @rule(reader=readers)
    def seek_end(self, reader):
        reader.at = len(self.log)
        assert reader.handle.seek_end() is False

    @precondition(lambda self: self.writer is not None)
    @rule()
    def everything_is_there(self):
        with tw.open_log(self.path) as reader:
            assert entries(reader) == self.log


def run(examples, steps):
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_queue_behaves_like_a_list():
    run(examples=40, steps=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_queue_behaves_like_a_list_at_length():
    run(examples=3000, steps=100)
