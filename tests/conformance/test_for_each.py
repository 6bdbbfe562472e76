"""for_each with Python functions and with compiled code."""

import ctypes
import gc
import threading
import weakref

import numba
import numpy as np
import pytest

import tapewire as tw
from tapewire.callback import RECORD_CALLBACK, numba_signature
from tests.conformance.kinds import needs
from tests.support.entries import Entry

TOTALS = np.dtype([("records", "i8"), ("bytes", "i8"), ("sum", "i8"), ("stop_at", "i8")])


@numba.cfunc(numba_signature())
def add_up(seq, timestamp_ns, type_id, flags, payload, size, data):
    totals = numba.carray(data, (4,), np.int64)
    totals[0] += 1
    totals[1] += size
    for byte in numba.carray(payload, (size,), np.uint8):
        totals[2] += byte
    return totals[0] != totals[3]


def totals_of(model):
    return len(model), sum(len(e.payload) for e in model), sum(sum(e.payload) for e in model)


@needs()
def test_numba_sees_every_record_and_its_bytes(log, read):
    log.fill(500)
    totals = np.zeros(1, TOTALS)
    assert read().for_each(add_up, data=totals) == 500
    assert totals[0].tolist()[:3] == totals_of(log.model)


@needs()
def test_every_field_reaches_a_compiled_callback(log, read):
    log.append(b"some bytes", type_id=7, flags=0x1200)
    log.append(b"", type_id=8)
    got = []

    @RECORD_CALLBACK
    def note(seq, timestamp_ns, type_id, flags, payload, size, data):
        got.append(Entry(seq, timestamp_ns, type_id, flags, ctypes.string_at(payload, size)))
        return True

    assert read().for_each(note) == 2
    assert got == log.model


@needs()
def test_a_compiled_callback_stops_the_walk_by_returning_false(log, read):
    log.fill(100)
    totals = np.zeros(1, TOTALS)
    totals["stop_at"] = 10
    reader = read()
    assert reader.for_each(add_up, data=totals) == 10
    assert reader.next().seq == 10


@needs()
def test_max_records_bounds_a_compiled_walk(log, read):
    log.fill(100)
    totals = np.zeros(1, TOTALS)
    reader = read()
    assert reader.for_each(add_up, 30, data=totals) == 30
    assert reader.for_each(add_up, 0, data=totals) == 0
    assert reader.for_each(add_up, 1_000, data=totals) == 70


sched_yield = ctypes.CDLL(None).sched_yield
sched_yield.argtypes = []
sched_yield.restype = ctypes.c_int


@numba.cfunc(numba_signature())
def wait_for_another_thread(seq, timestamp_ns, type_id, flags, payload, size, data):
    set_and_seen = numba.carray(data, (2,), np.int64)
    for _ in range(20_000_000):
        sched_yield()  # foreign code: the word is loaded again after it
        if set_and_seen[0] != 0:
            set_and_seen[1] = 1
            return True
    return False


@needs()
def test_compiled_code_runs_without_the_gil(log, read):
    log.fill(1)
    set_and_seen = np.zeros(2, np.int64)
    timer = threading.Timer(0.05, set_and_seen.__setitem__, [0, 1])  # needs the GIL
    timer.start()
    assert read().for_each(wait_for_another_thread, data=set_and_seen) == 1
    timer.join()
    assert set_and_seen[1] == 1


@needs("wait", "live")
@pytest.mark.parametrize("compiled", [False, True])
def test_following_waits_for_more(log, read, compiled):
    log.fill(10)
    totals = np.zeros(1, TOTALS)
    totals["stop_at"] = 30
    seen = []

    def note(record):
        seen.append(record.seq)
        return len(seen) != 30

    timer = threading.Timer(0.02, log.fill, [20])
    timer.start()
    if compiled:
        assert read().for_each(add_up, data=totals, follow=True) == 30
    else:
        assert read().for_each(note, follow=True) == 30
    timer.join()
    assert read().for_each(add_up, data=np.zeros(1, TOTALS), follow=True, timeout=0.01) == 30


@needs("wait")
def test_closing_ends_a_compiled_walk_that_follows(log, read):
    reader = read()
    timer = threading.Timer(0.02, reader.close)
    timer.start()
    assert reader.for_each(add_up, data=np.zeros(1, TOTALS), follow=True) == 0
    timer.join()


@needs()
def test_a_python_function_gets_records(log, read):
    log.fill(5)
    seen = []
    reader = read()
    assert reader.for_each(lambda record: seen.append(record.seq)) == 5
    assert seen == [0, 1, 2, 3, 4]


@needs()
def test_the_reader_is_busy_while_a_compiled_callback_runs(log, read):
    log.fill(1)
    reader = read()
    raised = []

    @RECORD_CALLBACK
    def look(*_):
        with pytest.raises(tw.ConcurrentUse):
            reader.next()
        raised.append(True)
        return True

    reader.for_each(look)
    assert raised == [True]


@numba.cfunc("boolean(uint64)")
def too_short(seq):
    return True


@needs()
@pytest.mark.parametrize(
    "fn",
    [
        too_short,
        ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0),
        ctypes.CDLL(None).getpid,  # does not declare its arguments
        RECORD_CALLBACK(),  # a null pointer
        ctypes.PYFUNCTYPE(RECORD_CALLBACK._restype_, *RECORD_CALLBACK._argtypes_)(lambda *_: True),
    ],
)
def test_a_callback_with_another_signature_is_refused(log, read, fn):
    log.fill(1)
    reader = read()
    with pytest.raises(TypeError, match="must be declared as bool"):
        reader.for_each(fn)
    assert reader.next().seq == 0


@needs()
def test_an_object_that_is_not_callable_is_refused(log, read):
    with pytest.raises(TypeError, match="callable"):
        read().for_each(42)


@needs()
def test_data_must_be_writable_and_for_compiled_code(log, read):
    with pytest.raises(BufferError):
        read().for_each(add_up, data=b"read-only")
    with pytest.raises(TypeError, match="compiled"):
        read().for_each(lambda record: None, data=bytearray(8))


@needs("wait")
@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_an_invalid_timeout_is_refused_before_the_first_record(log, read, timeout):
    log.fill(1)
    reader = read()
    with pytest.raises(ValueError, match="timeout"):
        reader.for_each(add_up, data=np.zeros(1, TOTALS), follow=True, timeout=timeout)
    assert reader.next().seq == 0


@needs()
def test_closing_the_reader_from_its_own_function_ends_the_walk(log, read):
    log.fill(10)
    reader = read()
    assert reader.for_each(lambda record: reader.close()) == 1


@needs()
def test_a_compiled_callback_is_not_kept_alive_by_a_cycle(log, read):
    log.fill(1)

    class Held:
        pass

    held = Held()
    weak = weakref.ref(held)
    callback = RECORD_CALLBACK(lambda *_, held=held: True)
    assert read().for_each(callback) == 1
    gc.disable()
    try:
        del callback, held
        assert weak() is None
    finally:
        gc.enable()
