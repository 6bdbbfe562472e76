"""The seek index: of sealed and active segments, and seeks that are correct with or without it."""

import numpy as np
import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.entries import BASE_NS, first_at_or_after
from tests.support.queue_format import index_path, parse_segment, segment_ids, segment_path

PARTIAL = 1
RUNNING_MAX = 2
STRIDE = 8
COUNT = 1000


def times(count=COUNT, seed=3):
    """Mostly rising times with some late ones."""
    rng = np.random.default_rng(seed)
    rising = BASE_NS + np.arange(count) * 100
    return (rising - rng.integers(0, 2_000, count) * rng.integers(0, 2, count)).tolist()


def fill(writer, stamps):
    for stamp in stamps:
        writer.append(1, bytes(40), timestamp_ns=stamp)


def check_index(queue, number, *, sealed, stride=STRIDE):
    """An index agrees with its segment, field by field."""
    header, entries = queue_files.index(queue, number)
    _, stored = parse_segment(segment_path(queue, number))
    assert header["segment_id"] == number
    assert header["segment_size"] == 8192
    assert header["data_offset"] == 64
    assert header["entry_stride"] == stride
    assert header["flags"] == RUNNING_MAX | (0 if sealed else PARTIAL)
    running = np.maximum.accumulate([r.timestamp_ns for r in stored]).tolist()
    expected = [
        {"seq": r.seq, "timestamp_ns": highest, "offset": r.offset}
        for r, highest in list(zip(stored, running, strict=True))[::stride]
    ]
    if sealed:
        assert entries == expected
        covered = stored
    else:
        assert entries == expected[: len(entries)]
        covered = stored[: (len(entries) - 1) * stride + 1]
    assert header["min_seq"] == covered[0].seq
    assert header["max_seq"] == covered[-1].seq
    assert header["min_ts_ns"] == min(r.timestamp_ns for r in covered)
    assert header["max_ts_ns"] == max(r.timestamp_ns for r in covered)


def check_seeks(queue, stamps, step=97):
    """Every seek by time and number equals that of a plain list."""
    count = len(stamps)
    with tw.open_log(queue) as reader:
        around = {stamp + shift for stamp in stamps[::step] for shift in (-1, 0, 1)}
        for wanted in sorted(around | {0, min(stamps) - 1, max(stamps), max(stamps) + 1}):
            expected = first_at_or_after(stamps, wanted)
            assert reader.seek_time(wanted) is (expected < count)
            record = reader.next()
            assert (record.seq if record else count) == expected
        for number in range(0, count + 2, step):
            assert reader.seek_seq(number) is (number < count)
            record = reader.next()
            assert (record.seq if record else count) == min(number, count)


@pytest.fixture
def stamps():
    return times()


@pytest.fixture
def filled(publisher, queue, stamps):
    """A closed queue of many segments, every index written."""
    with publisher(index_stride=STRIDE) as writer:
        fill(writer, stamps)
    return queue


def test_every_segment_of_a_closed_queue_has_an_index_that_agrees_with_it(filled):
    with_records = [n for n in segment_ids(filled) if parse_segment(segment_path(filled, n))[1]]
    assert len(with_records) > 10
    for number in with_records[:-1]:
        check_index(filled, number, sealed=True)
    check_index(filled, with_records[-1], sealed=False)


def test_sealed_segments_are_indexed_while_the_writer_runs(publisher, queue, stamps, eventually):
    writer = publisher(index_stride=STRIDE)
    fill(writer, stamps)
    last = writer.metrics()["rolls"]

    def complete(number):
        try:
            return queue_files.index(queue, number)[0]["flags"] == RUNNING_MAX
        except (FileNotFoundError, ValueError):
            return False

    for number in range(last):
        eventually(lambda number=number: complete(number))
        check_index(queue, number, sealed=True)


def test_the_active_segment_is_indexed_as_it_grows(publisher, queue, stamps, eventually):
    writer = publisher(index_stride=STRIDE)

    def entries():
        try:
            return len(queue_files.index(queue, 0)[1])
        except (FileNotFoundError, ValueError):
            return -1

    fill(writer, stamps[:1])
    eventually(lambda: entries() == 1)
    check_index(queue, 0, sealed=False)
    fill(writer, stamps[1:17])
    eventually(lambda: entries() == 3)
    check_index(queue, 0, sealed=False)


def test_the_default_stride_is_4096(publisher, queue):
    with publisher() as writer:
        fill(writer, times(150))
    check_index(queue, 0, sealed=True, stride=4096)
    assert len(queue_files.index(queue, 0)[1]) == 1


@pytest.mark.parametrize("stride", [1, 2, 7, 63])
def test_any_stride_gives_correct_indexes_and_seeks(publisher, queue, stride):
    stamps = times(300)
    with publisher(index_stride=stride) as writer:
        fill(writer, stamps)
    check_index(queue, 0, sealed=True, stride=stride)
    check_seeks(queue, stamps, step=13)


def test_seeks_equal_a_plain_list(filled, stamps):
    check_seeks(filled, stamps, step=7)


def test_seeks_equal_a_plain_list_while_the_writer_runs(publisher, queue, stamps):
    writer = publisher(index_stride=STRIDE)
    for end in range(100, COUNT + 1, 300):
        fill(writer, stamps[writer.next_seq : end])
        check_seeks(queue, stamps[:end])


def test_times_that_only_decrease_are_found_at_the_first_record(publisher, queue):
    stamps = [BASE_NS - i for i in range(500)]
    with publisher(index_stride=STRIDE) as writer:
        fill(writer, stamps)
    check_seeks(queue, stamps, step=3)


def test_a_single_late_peak_hides_no_later_record(publisher, queue):
    stamps = [BASE_NS + i for i in range(500)]
    stamps[250] += 10**9
    with publisher(index_stride=STRIDE) as writer:
        fill(writer, stamps)
    check_seeks(queue, stamps, step=5)
    with tw.open_log(queue) as reader:
        assert reader.seek_time(BASE_NS + 10**6)
        assert reader.next().seq == 250


@pytest.mark.parametrize("stops", [[1], [8], [9], [75], [76], [300, 301, 302], [500, 999]], ids=str)
def test_a_restarted_writer_completes_the_index(publisher, queue, stamps, stops):
    done = 0
    for stop in [*stops, COUNT]:
        with publisher(index_stride=STRIDE) as writer:
            fill(writer, stamps[done:stop])
        done = stop
    last = queue_files.control(queue)["current_segment"]
    for number in range(last):
        header, entries = queue_files.index(queue, number)
        _, stored = parse_segment(segment_path(queue, number))
        assert header["flags"] == RUNNING_MAX
        assert (header["min_seq"], header["max_seq"]) == (stored[0].seq, stored[-1].seq)
        assert header["min_ts_ns"] == min(r.timestamp_ns for r in stored)
        assert header["max_ts_ns"] == max(r.timestamp_ns for r in stored)
        assert entries[0]["seq"] == stored[0].seq
        assert len(entries) >= len(stored) // STRIDE
    check_seeks(queue, stamps)


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_a_restarted_writer_indexes_what_a_crash_left_without(
    publisher, filled, stamps, eventually, checkpoint
):
    sealed = queue_files.control(filled)["current_segment"]
    index_path(filled, sealed - 1).unlink()
    index_path(filled, 3).unlink()
    every_index(filled, flip(12))  # as if the rest had been incomplete
    if checkpoint == "lost":
        (filled / "index.meta").unlink()
    publisher(index_stride=STRIDE)

    def complete(number):
        try:
            return queue_files.index(filled, number)[0]["flags"] == RUNNING_MAX
        except (FileNotFoundError, ValueError):
            return False

    check_seeks(filled, stamps)
    eventually(lambda: all(complete(number) for number in range(sealed)))


def every_index(queue, change):
    for path in queue.glob("*.idx"):
        path.write_bytes(change(bytearray(path.read_bytes())))


def flip(at):
    def change(data):
        data[at % len(data)] ^= 0x10
        return data

    return change


def swap_entries(data):
    data[80:104], data[104:128] = data[104:128], data[80:104]
    return data


DAMAGE = {
    "empty": lambda data: b"",
    "short header": lambda data: data[:79],
    "header alone": lambda data: data[:80],
    "half an entry": lambda data: data[:90],
    "no trailer": lambda data: data[:-16],
    "longer": lambda data: data + bytes(100),
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
    "partial flag": flip(12),
    "swapped entries": swap_entries,
    "many entries": lambda data: data[:72] + (2**63).to_bytes(8, "little") + data[80:],
    "entry offset": lambda data: data[:96] + (2**60 + 64).to_bytes(8, "little") + data[104:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_index_changes_no_answer(filled, stamps, name):
    every_index(filled, DAMAGE[name])
    check_seeks(filled, stamps)


@pytest.mark.parametrize("at", range(0, 152, 3))
def test_a_flipped_bit_in_an_index_changes_no_answer(filled, stamps, at):
    every_index(filled, flip(at))
    check_seeks(filled, stamps, step=331)


def test_a_missing_index_changes_no_answer(filled, stamps):
    for path in filled.glob("*.idx"):
        path.unlink()
    check_seeks(filled, stamps)


def test_indexes_of_other_segments_change_no_answer(filled, stamps):
    paths = sorted(filled.glob("*.idx"))
    data = [path.read_bytes() for path in paths]
    for path, other in zip(paths, data[1:] + data[:1], strict=True):
        path.write_bytes(other)
    check_seeks(filled, stamps)


def test_a_directory_in_place_of_an_index_changes_no_answer(filled, stamps):
    for path in filled.glob("*.idx"):
        path.unlink()
        path.mkdir()
    check_seeks(filled, stamps, step=331)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_writer_opens_and_appends_over_a_damaged_index(publisher, filled, stamps, name):
    every_index(filled, DAMAGE[name])
    with publisher(index_stride=STRIDE) as writer:
        more = times(200, seed=9)
        assert writer.next_seq == COUNT
        fill(writer, [t + COUNT * 100 for t in more])
    check_seeks(filled, stamps + [t + COUNT * 100 for t in more], step=331)


def test_an_index_without_running_maximum_is_used_with_care(filled, stamps):
    """As other implementations write them: entries have the time of the record itself."""
    for number in segment_ids(filled):
        if not index_path(filled, number).exists():
            continue
        _, stored = parse_segment(segment_path(filled, number))
        data = bytearray(index_path(filled, number).read_bytes())
        data[12:16] = (0).to_bytes(4, "little")
        for i, record in enumerate(stored[::STRIDE]):
            if 80 + 24 * i + 24 <= len(data) - 16:
                data[88 + 24 * i : 96 + 24 * i] = record.timestamp_ns.to_bytes(8, "little")
        if stored:
            highest = max(r.timestamp_ns for r in stored)
            data[48:56] = stored[-1].seq.to_bytes(8, "little")
            data[64:72] = highest.to_bytes(8, "little")
        index_path(filled, number).write_bytes(data[:-16])
    check_seeks(filled, stamps, step=31)
