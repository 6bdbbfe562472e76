"""append: types, flags, times, numbers, and payloads of every buffer type."""

import array
import ctypes
import datetime as dt
import mmap

import numpy as np
import pytest

import tapewire as tw
from tapewire import _native
from tests.support.records import stored, stored_payloads

SEGMENT = 8192
MOST = SEGMENT - 128


@pytest.fixture
def writer(publisher):
    return publisher()


@pytest.mark.parametrize("type_id", [0, 1, 0x1001, 0xFFFE, np.uint16(7), np.int64(7)])
def test_types_from_0_to_0xfffe_are_accepted(writer, queue, type_id):
    writer.append(type_id, b"x")
    assert stored(queue)[0].type_id == int(type_id)


@pytest.mark.parametrize("wrong", [0xFFFF, -1, 65536, 2**63 - 1, -(2**63)])
def test_a_type_out_of_range_is_refused(writer, queue, wrong):
    for append in (
        lambda: writer.append(wrong, b"x"),
        lambda: writer.append_batch(wrong, [b"x"]),
        lambda: writer.append_batch([wrong], [b"x"]),
        lambda: writer.reserve(wrong, 8),
    ):
        with pytest.raises(tw.InvalidTypeId, match="type_id"):
            append()
    assert writer.next_seq == 0
    assert stored(queue) == []


@pytest.mark.parametrize("wrong", ["x", None, 1.0, b"1"])
def test_a_type_that_is_not_an_integer_is_refused(writer, queue, wrong):
    for append in (
        lambda: writer.append(wrong, b"x"),
        lambda: writer.append_batch(wrong, [b"x"]),
        lambda: writer.reserve(wrong, 8),
    ):
        with pytest.raises(TypeError):
            append()
    assert stored(queue) == []


@pytest.mark.parametrize("flags", [0, 0x0100, 0xFF00, np.uint16(0x4200)])
def test_the_high_8_flags_are_for_the_user(writer, queue, flags):
    writer.append(1, b"x", flags=flags)
    assert stored(queue)[0].flags == int(flags)


@pytest.mark.parametrize("wrong", [1, 0x80, 0xFF, 0x0101, 0x10000, -1, -256])
def test_the_low_8_flags_are_refused(writer, queue, wrong):
    for append in (
        lambda: writer.append(1, b"x", flags=wrong),
        lambda: writer.append_batch(1, [b"x"], flags=wrong),
        lambda: writer.append_batch(1, [b"x"], flags=[wrong]),
        lambda: writer.reserve(1, 8, flags=wrong),
    ):
        with pytest.raises(tw.InvalidOption, match="flags"):
            append()
    assert stored(queue) == []


def buffers():
    numbers = np.arange(24, dtype="<u4").reshape(4, 6)
    mapped = mmap.mmap(-1, 4096)
    mapped[:5] = b"hello"
    return {
        "bytes": (b"hello", b"hello"),
        "bytes subclass": (type("Mine", (bytes,), {})(b"hello"), b"hello"),
        "bytearray": (bytearray(b"hello"), b"hello"),
        "memoryview": (memoryview(b"hello"), b"hello"),
        "memoryview slice": (memoryview(b"hello")[1:4], b"ell"),
        "memoryview strided": (memoryview(b"hello")[::2], b"hlo"),
        "memoryview reversed": (memoryview(b"hello")[::-1], b"olleh"),
        "memoryview writable": (memoryview(bytearray(b"hello")), b"hello"),
        "memoryview of ints": (memoryview(array.array("I", [1, 2])), b"\1\0\0\0\2\0\0\0"),
        "numpy": (numbers, numbers.tobytes()),
        "numpy strided": (numbers[:, ::2], numbers[:, ::2].tobytes()),
        "numpy transposed": (numbers.T, numbers.T.tobytes()),
        "numpy reversed": (numbers[::-1], numbers[::-1].tobytes()),
        "numpy scalar array": (np.array(7, "<u2"), b"\7\0"),
        "numpy structured": (np.zeros(2, [("a", "<i4"), ("b", "u1")]), bytes(10)),
        "numpy record": (np.zeros(2, [("a", "<i4"), ("b", "u1")])[0], bytes(5)),
        "numpy read-only": (np.frombuffer(b"hello", "u1"), b"hello"),
        "numpy empty": (np.empty(0), b""),
        "array.array": (array.array("H", [1, 2]), b"\1\0\2\0"),
        "mmap": (mapped, b"hello" + bytes(4091)),
        "ctypes array": ((ctypes.c_uint16 * 2)(1, 2), b"\1\0\2\0"),
        "ctypes number": (ctypes.c_uint32(7), b"\7\0\0\0"),
        "empty bytes": (b"", b""),
        "empty bytearray": (bytearray(), b""),
    }


@pytest.mark.parametrize("name", buffers())
def test_any_buffer_is_a_payload(writer, queue, name):
    payload, expected = buffers()[name]
    assert writer.append(1, payload) == 0
    writer.append_batch(1, [payload, b"between", payload])
    assert stored_payloads(queue) == [expected, expected, b"between", expected]


def test_a_record_is_a_payload_of_another_queue(writer, queue, tmp):
    writer.append(1, b"hello")
    with tw.open_log(queue) as reader, tw.open_publisher(tmp / "b", segment_bytes=8192) as copy:
        for record in reader:
            copy.append(record.type_id, record.payload)
            copy.append(record.type_id, record)
    assert stored_payloads(tmp / "b") == [b"hello", b"hello"]


NO_BUFFER = ["text", None, 5, 1.5, ["a"], pytest.param(object(), id="object()")]


@pytest.mark.parametrize("wrong", NO_BUFFER, ids=repr)
def test_an_object_without_a_buffer_is_refused(writer, queue, wrong):
    with pytest.raises(TypeError, match="payload"):
        writer.append(1, wrong)
    with pytest.raises(TypeError, match="payload"):
        writer.append_batch(1, [b"ok", wrong])
    assert stored(queue) == []


def test_a_payload_is_released_after_the_call(writer):
    payload = bytearray(b"hello")
    writer.append(1, payload)
    writer.append_batch(1, [payload, payload])
    payload.extend(b"more")  # refused while the buffer is exported
    with pytest.raises(tw.InvalidTypeId):
        writer.append_batch(0xFFFF, [payload])
    payload.extend(b"more")


def test_a_payload_of_the_maximum_size_fills_a_segment(writer, queue):
    largest = np.random.default_rng(0).bytes(MOST)
    writer.append(1, largest)
    writer.append(1, largest)
    writer.append_batch(1, [largest, largest])
    with writer.reserve(1, MOST) as slot:
        slot[:] = largest
    assert stored_payloads(queue) == [largest] * 5


@pytest.mark.parametrize("size", [MOST + 1, MOST + 64, SEGMENT, 10 * SEGMENT])
def test_a_payload_larger_than_that_is_refused(writer, queue, size):
    writer.append(1, b"before")
    for append in (
        lambda: writer.append(1, bytes(size)),
        lambda: writer.append_batch(1, [b"ok", bytes(size)]),
        lambda: writer.reserve(1, size),
    ):
        with pytest.raises(tw.PayloadTooLarge, match=f"payload_bytes={size}.*max={MOST}") as caught:
            append()
        assert isinstance(caught.value, ValueError)
    assert writer.append(1, b"after") == 1
    assert stored_payloads(queue) == [b"before", b"after"]


def test_the_time_is_now_unless_given(writer, queue):
    before = _native.wall_clock_ns()
    writer.append(1, b"x")
    after = _native.wall_clock_ns()
    writer.append(1, b"x", timestamp_ns=17)
    writer.append(1, b"x", 18)
    first, second, third = stored(queue)
    assert before <= first.timestamp_ns <= after
    assert (second.timestamp_ns, third.timestamp_ns) == (17, 18)


@pytest.mark.parametrize(
    "time",
    [
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        np.datetime64("1970-01-01T00:00:01"),
        "1970-01-01T00:00:01Z",
        np.int64(10**9),
    ],
    ids=repr,
)
def test_a_time_may_be_given_in_every_form(writer, queue, time):
    writer.append(1, b"x", timestamp_ns=time)
    writer.append_batch(1, [b"x"], timestamps_ns=time)
    with writer.reserve(1, 1, timestamp_ns=time) as slot:
        slot[:] = b"x"
    assert [e.timestamp_ns for e in stored(queue)] == [10**9] * 3


@pytest.mark.parametrize("wrong", [-1, 2**63, dt.datetime(2024, 1, 1), "2024-01-01T00:00:00"])
def test_an_invalid_time_is_refused(writer, queue, wrong):
    for append in (
        lambda: writer.append(1, b"x", timestamp_ns=wrong),
        lambda: writer.append_batch(1, [b"x"], timestamps_ns=wrong),
        lambda: writer.append_batch(1, [b"x"], timestamps_ns=[wrong]),
        lambda: writer.reserve(1, 8, timestamp_ns=wrong),
    ):
        with pytest.raises((ValueError, OverflowError)):
            append()
    assert stored(queue) == []


def test_numbers_increase_by_one_from_first_seq(publisher, queue):
    writer = publisher(first_seq=1)
    assert (writer.first_seq, writer.next_seq) == (1, 1)
    assert [writer.append(1, bytes(500)) for _ in range(40)] == list(range(1, 41))
    writer.close()
    assert publisher().append(1, b"") == 41
    assert [e.seq for e in stored(queue)] == list(range(1, 42))


def test_a_dense_log_refuses_a_number(writer, queue):
    for append in (
        lambda: writer.append(1, b"x", seq=0),
        lambda: writer.append_batch(1, [b"x"], seqs=[0]),
        lambda: writer.reserve(1, 8, seq=0),
    ):
        with pytest.raises(tw.InvalidOption, match="sparse"):
            append()
    assert stored(queue) == []


def test_a_sparse_log_accepts_rising_numbers(publisher, queue):
    writer = publisher(sparse=True)
    assert writer.append(1, b"x", seq=10) == 10
    assert writer.append(1, b"x") == 11
    assert writer.append(1, b"x", seq=100) == 100
    assert writer.append_batch(1, [b"x", b"x"], seqs=[101, 500]) == [101, 500]
    with writer.reserve(1, 1, seq=1000) as slot:
        slot[:] = b"x"
    assert writer.next_seq == 1001
    assert [e.seq for e in stored(queue)] == [10, 11, 100, 101, 500, 1000]
    writer.close()
    assert publisher().next_seq == 1001


@pytest.mark.parametrize("wrong", [0, 10, 2**64 - 1])
def test_a_sparse_log_refuses_numbers_that_do_not_rise(publisher, queue, wrong):
    writer = publisher(sparse=True)
    writer.append(1, b"x", seq=10)
    for append in (
        lambda: writer.append(1, b"x", seq=wrong),
        lambda: writer.append_batch(1, [b"x"], seqs=[wrong]),
        lambda: writer.reserve(1, 8, seq=wrong),
    ):
        with pytest.raises((tw.SequenceNotRising, tw.InvalidOption)):
            append()
    with pytest.raises(tw.SequenceNotRising):
        writer.append_batch(1, [b"x", b"x"], seqs=[12, 12])
    assert [e.seq for e in stored(queue)] == [10]
    assert writer.append(1, b"x") == 11


@pytest.mark.parametrize("wrong", [-1, 2**64, "1", 1.5])
def test_an_invalid_number_is_refused(publisher, queue, wrong):
    writer = publisher(sparse=True)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        writer.append(1, b"x", seq=wrong)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        writer.append_batch(1, [b"x"], seqs=[wrong])
    with pytest.raises((TypeError, ValueError, OverflowError)):
        writer.reserve(1, 8, seq=wrong)
    assert writer.append(1, b"y") == 0
    assert stored_payloads(queue) == [b"y"]


def test_a_reader_reports_no_gap_in_a_sparse_log(publisher, queue):
    writer = publisher(sparse=True)
    for seq in range(0, 3000, 30):
        writer.append(1, bytes(200), seq=seq)
    assert [e.seq for e in stored(queue)] == list(range(0, 3000, 30))
    with tw.open_log(queue) as reader:
        assert reader.sparse
        assert reader.seek_seq(1501)
        assert reader.next().seq == 1530
        assert reader.seek_seq(1530)
        assert reader.next().seq == 1530
