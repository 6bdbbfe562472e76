"""append_batch: rows of every shape, columns for the other fields, all or nothing."""

import array

import numpy as np
import pytest

import tapewire as tw
from tests.support.entries import BASE_NS
from tests.support.queue_format import stored_records
from tests.support.records import stored, stored_payloads

TICK = np.dtype([("price", "<i8"), ("size", "<i4"), ("side", "u1")])


@pytest.fixture
def writer(publisher):
    return publisher()


def test_a_batch_gets_the_numbers_that_follow(writer, queue):
    writer.append(1, b"before")
    assert writer.append_batch(1, [b"a", b"b", b"c"]) == range(1, 4)
    assert writer.append(1, b"after") == 4
    assert stored_payloads(queue) == [b"before", b"a", b"b", b"c", b"after"]


def test_a_batch_equals_single_appends(publisher, queue, tmp):
    writer = publisher(preallocate=False)
    rows = [np.random.default_rng(i).bytes(i % 300) for i in range(200)]
    writer.append_batch(7, rows, timestamps_ns=BASE_NS, flags=0x0300)
    with tw.open_publisher(tmp / "single", segment_bytes=8192, preallocate=False) as single:
        for row in rows:
            single.append(7, row, timestamp_ns=BASE_NS, flags=0x0300)
    writer.close()
    # Everything except the key and the checks that it seeds, which the parser verifies.
    assert stored_records(queue) == stored_records(tmp / "single")


def test_a_two_dimensional_array_is_one_record_per_row(writer, queue):
    rows = np.arange(600, dtype="<u4").reshape(100, 6)
    assert writer.append_batch(1, rows) == range(100)
    assert stored_payloads(queue) == [row.tobytes() for row in rows]


def test_a_structured_array_is_one_record_per_item(writer, queue):
    rows = np.zeros(300, TICK)
    rows["price"] = np.arange(300)
    writer.append_batch(1, rows)
    assert stored_payloads(queue) == [row.tobytes() for row in rows]


def test_an_array_of_fixed_bytes_is_one_record_per_item(writer, queue):
    writer.append_batch(1, np.array([b"ab", b"cdef", b""], "S4"))
    assert stored_payloads(queue) == [b"ab\0\0", b"cdef", bytes(4)]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::3],
        lambda a: a[::-1],
        lambda a: a[10:2:-2],
        lambda a: a[:, ::2],
        lambda a: a[:, ::-1],
        lambda a: a[:, 1:3],
        lambda a: a.T,
        np.asfortranarray,
        lambda a: np.broadcast_to(a[3], (5, 6)),
        lambda a: a[:, :1],
    ],
    ids=[
        "step",
        "reversed",
        "both",
        "cols",
        "cols-reversed",
        "slice",
        "T",
        "F",
        "broadcast",
        "one",
    ],
)
def test_the_rows_of_an_array_of_any_strides_are_appended(writer, queue, view):
    rows = view(np.arange(120, dtype="<u4").reshape(20, 6))
    writer.append_batch(1, rows)
    assert stored_payloads(queue) == [row.tobytes() for row in rows]


@pytest.mark.parametrize("step", [2, -1, -3])
def test_the_items_of_a_structured_array_of_any_stride_are_appended(writer, queue, step):
    rows = np.zeros(50, TICK)
    rows["price"] = np.arange(50)
    writer.append_batch(1, rows[::step])
    assert stored_payloads(queue) == [row.tobytes() for row in rows[::step]]


def test_one_field_of_a_structured_array_is_a_column(writer, queue):
    rows = np.zeros(5, [("a", "S3"), ("b", "<i8")])
    rows["a"] = b"abc"
    writer.append_batch(1, rows["a"])
    assert stored_payloads(queue) == [b"abc"] * 5


def test_a_list_may_mix_buffers_of_every_kind_and_length(writer, queue):
    rows = [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview")[::2],
        np.arange(3, dtype="u1"),
        array.array("H", [1]),
        b"",
        b"x" * 5000,
    ]
    writer.append_batch(1, rows)
    writer.append_batch(1, tuple(rows))
    expected = [b"bytes", b"bytearray", b"mmrve", b"\0\1\2", b"\1\0", b"", b"x" * 5000]
    assert stored_payloads(queue) == expected * 2


def test_rows_without_bytes_are_records_without_bytes(writer, queue):
    writer.append_batch(1, np.empty((3, 0)))
    assert stored_payloads(queue) == [b""] * 3


@pytest.mark.parametrize("rows", [[], (), np.empty((0, 4)), np.empty(0, TICK)], ids=repr)
def test_an_empty_batch_appends_nothing(writer, queue, rows):
    writer.append(1, b"x")
    assert writer.append_batch(1, rows) == range(1, 1)
    assert writer.next_seq == 1
    assert len(stored(queue)) == 1


def test_every_field_may_be_a_column(writer, queue):
    times = BASE_NS + np.arange(4)[::-1]
    writer.append_batch(
        np.array([1, 2, 3, 0xFFFE]),
        [b"a", b"b", b"c", b"d"],
        timestamps_ns=times,
        flags=np.array([0, 0x100, 0x200, 0xFF00], "u2"),
    )
    got = stored(queue)
    assert [e.type_id for e in got] == [1, 2, 3, 0xFFFE]
    assert [e.flags for e in got] == [0, 0x100, 0x200, 0xFF00]
    assert [e.timestamp_ns for e in got] == times.tolist()


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_column_may_be_a_list_a_tuple_or_an_array(writer, queue, kind):
    writer.append_batch(
        kind([1, 2]), [b"a", b"b"], timestamps_ns=kind([5, 6]), flags=kind([0, 256])
    )
    assert [e[1:4] for e in stored(queue)] == [(5, 1, 0), (6, 2, 256)]


def test_a_column_may_have_any_stride_and_width(writer, queue):
    wide = np.arange(1, 21, dtype="i8")
    writer.append_batch(wide[::-2], [b"x"] * 10, timestamps_ns=np.arange(10, dtype="u2")[::-1])
    assert [e.type_id for e in stored(queue)] == wide[::-2].tolist()
    assert [e.timestamp_ns for e in stored(queue)] == list(range(10))[::-1]


def test_times_of_a_batch_may_be_datetime64_or_text(writer, queue):
    writer.append_batch(1, [b"a", b"b"], timestamps_ns=np.array([1, 2], "datetime64[s]"))
    times = ["1970-01-01T00:00:03Z", np.datetime64(4, "s")]
    writer.append_batch(1, [b"c", b"d"], timestamps_ns=times)
    assert [e.timestamp_ns for e in stored(queue)] == [s * 10**9 for s in (1, 2, 3, 4)]


def test_without_times_all_rows_have_the_time_of_the_call(writer, queue):
    writer.append_batch(1, [b"a"] * 100)
    assert len({e.timestamp_ns for e in stored(queue)}) == 1


def test_seqs_of_a_sparse_log_are_read_back(publisher, queue):
    writer = publisher(sparse=True)
    numbers = np.array([5, 7, 100], "i8")
    assert writer.append_batch(1, [b"a", b"b", b"c"], seqs=numbers) is numbers
    assert writer.append_batch(1, [b"d", b"e"]) == range(101, 103)
    assert [e.seq for e in stored(queue)] == [5, 7, 100, 101, 102]


@pytest.mark.parametrize(
    "columns",
    [
        {"type_id": [1]},
        {"type_id": [1, 2, 3]},
        {"type_id": []},
        {"timestamps_ns": [1]},
        {"timestamps_ns": np.zeros((2, 1), int)},
        {"flags": [0, 0, 0]},
        {"seqs": [5]},
        {"seqs": []},
    ],
    ids=str,
)
def test_a_column_of_another_length_is_refused(publisher, queue, columns):
    writer = publisher(sparse=True)
    with pytest.raises(tw.InvalidOption, match="one value per row"):
        writer.append_batch(**{"type_id": 1, "rows": [b"a", b"b"], **columns})
    assert stored(queue) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"type_id": [1.0, 2.0]},
        {"type_id": ["a", "b"]},
        {"type_id": [True, False]},
        {"flags": [0.0, 0.0]},
        {"timestamps_ns": [1.5, 2.5]},
        {"timestamps_ns": np.array([1.5, 2.5])},
        {"seqs": [1.5, 2.5]},
    ],
    ids=str,
)
def test_a_column_without_integers_is_refused(publisher, queue, columns):
    writer = publisher(sparse=True)
    with pytest.raises(TypeError):
        writer.append_batch(**{"type_id": 1, "rows": [b"a", b"b"], **columns})
    assert stored(queue) == []


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(5),
        np.zeros((2, 2, 2)),
        np.array([b"a", "b"], object),
        np.array(["a", "b"]),
        np.array(5),
        "text",
        b"bytes",
        {b"a"},
        7,
        None,
    ],
    ids=repr,
)
def test_rows_of_another_shape_are_refused(writer, queue, rows):
    with pytest.raises(TypeError):
        writer.append_batch(1, rows)
    assert stored(queue) == []


def test_an_invalid_row_anywhere_appends_nothing(writer, queue):
    for wrong in (["text"], [None], [bytes(8192)]):
        with pytest.raises((TypeError, tw.PayloadTooLarge)):
            writer.append_batch(1, [b"a"] * 200 + wrong)
    assert stored(queue) == []
    assert writer.next_seq == 0


def test_a_batch_goes_through_many_rolls(writer, queue):
    rows = np.random.default_rng(1).integers(0, 255, (2000, 100), "u1")
    assert writer.append_batch(1, rows) == range(2000)
    assert writer.metrics()["rolls"] > 20
    assert stored_payloads(queue) == [row.tobytes() for row in rows]


def test_rows_of_a_batch_end_exactly_where_the_segment_does(writer, queue):
    # 8128 bytes of records fit a segment: 127 of 64 bytes each, to the last byte.
    assert writer.append_batch(1, [b""] * (127 * 5)) == range(127 * 5)
    assert writer.metrics()["rolls"] == 4
    assert len(stored(queue)) == 127 * 5
