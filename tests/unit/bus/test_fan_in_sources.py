"""Readers in a fan-in: added, removed, committed, closed, damaged."""

import gc
import os
import signal
import threading

import pytest

import tapewire as tw
from tapewire import bus
from tests.support import queue_format as qf
from tests.unit.bus.sources import given


def test_a_source_may_be_added_while_running(sources):
    sources.write("b", 10, 30).write("a", 5, 20)
    fan = sources.fan("b")
    assert fan.next().timestamp_ns == 10
    fan.add("a", tw.open_log(sources.path("a")))
    assert [record.timestamp_ns for record in fan] == [5, 20, 30]


def test_a_source_added_while_records_are_read_is_ordered_by_name(sources):
    sources.write("b", 10, 10).write("c", 10).write("a", 10)
    fan = sources.fan("b", "c")
    assert fan.next().source == "b"
    fan.add("a", tw.open_log(sources.path("a")))
    assert given(fan) == [("a", 0), ("b", 1), ("c", 0)]


def test_a_removed_source_is_released_after_what_was_read(sources):
    sources.write("a", 1, 2, 3).write("b", 1, 2, 3)
    fan = sources.fan()
    assert [fan.next().source for _ in range(3)] == ["a", "b", "a"]
    reader = fan.remove("a")
    assert reader.next().seq == 2
    assert given(fan) == [("b", 1), ("b", 2)]
    with pytest.raises(KeyError, match="'a'"):
        fan.remove("a")


def test_the_record_read_last_outlives_its_source(sources):
    sources.write("a", 1, payload=b"still here")
    fan = sources.fan("a")
    record = fan.next()
    fan.remove("a").close()
    assert bytes(record.payload) == b"still here"
    assert record.source == "a"


def test_the_last_source_removed_leaves_an_empty_fan_in(sources):
    sources.write("a", 1)
    fan = sources.fan("a")
    fan.remove("a")
    assert fan.next() is None
    assert len(fan.read_batch()) == 0
    assert fan.wait(0.001) is False


def test_names_are_unique_and_are_text(sources):
    sources.write("a", 1)
    fan = sources.fan("a")
    for name in ("a", "", b"a", None):
        with pytest.raises(tw.InvalidName):
            fan.add(name, tw.open_log(sources.path("a")))


def test_only_readers_of_tapewire_are_sources(sources):
    with pytest.raises(TypeError, match="reader"):
        bus.FanInReader({"a": iter([])})
    fan = sources.fan()
    with pytest.raises(tw.InvalidOption):
        fan.add("self", fan)


def test_a_reader_in_a_fan_in_cannot_be_moved_directly(sources):
    sources.write("a", 1, 2)
    fan = sources.fan("a")
    reader = fan.readers["a"]
    for use in (reader.next, reader.seek_start, reader.read_batch, reader.wait, reader.fileno):
        with pytest.raises(tw.ConcurrentUse, match="FanInReader"):
            use()
    with pytest.raises(tw.ConcurrentUse):
        next(reader)
    with pytest.raises(tw.ConcurrentUse):
        bus.FanInReader({"again": reader})
    assert fan.next().seq == 0
    assert reader.last_seq == 0
    assert reader.writer_status().alive
    assert reader.detect_disconnect() is None


def test_a_failed_construction_releases_its_readers(sources):
    sources.write("a", 1)
    reader = tw.open_log(sources.path("a"))
    with pytest.raises(TypeError):
        bus.FanInReader({"a": reader, "b": "no reader"})
    assert reader.next().seq == 0


def test_closing_releases_the_readers_without_closing_them(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))
    fan = bus.FanInReader({"a": reader})
    assert fan.next().seq == 0
    fan.close()
    fan.close()
    assert fan.closed
    assert reader.next().seq == 1
    with pytest.raises(tw.ClosedHandle):
        fan.next()


def test_an_unreferenced_fan_in_releases_its_readers(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))
    fan = bus.FanInReader({"a": reader})
    fan.next()
    del fan
    assert reader.next().seq == 1


def test_a_garbage_collected_fan_in_releases_its_readers(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))

    class Router:
        pass

    router = Router()
    router.fan = bus.FanInReader({"a": reader})
    router.fan.next()
    router.self = router
    del router
    gc.collect()
    assert reader.next().seq == 1


def test_closing_a_reader_in_a_fan_in_removes_it(sources):
    sources.write("a", 1, 3).write("b", 2)
    fan = sources.fan()
    fan.next()
    fan.readers["a"].close()
    assert list(fan.readers) == ["b"]
    assert given(fan) == [("b", 0)]


def test_commit_stores_for_each_source_exactly_what_was_read(sources):
    sources.write("a", 1, 3, 5).write("b", 2, 4, 6)

    def open_named():
        return {name: tw.open_subscriber(sources.path(name), "router") for name in "ab"}

    with bus.FanInReader(open_named()) as fan:
        assert [fan.next().timestamp_ns for _ in range(3)] == [1, 2, 3]
        fan.commit()
        assert fan.next().timestamp_ns == 4
    with bus.FanInReader(open_named()) as fan:
        assert [record.timestamp_ns for record in fan] == [4, 5, 6]


def test_positions_follow_the_returned_records_not_those_read_ahead(sources):
    sources.write("a", 1, 3).write("b", 2)
    fan = sources.fan()
    start = dict(fan.position)
    fan.next()
    assert dict(fan.position)["a"] != start["a"]
    assert dict(fan.position)["b"] == start["b"]


def test_seeking_a_time_moves_all_sources(sources):
    sources.write("a", 10, 20, 30).write("b", 15, 25)
    fan = sources.fan()
    assert given(fan)
    assert fan.seek_time(20) is True
    assert [record.timestamp_ns for record in fan] == [20, 25, 30]
    assert fan.seek_time(31) is False
    assert fan.next() is None
    assert fan.seek_end() is False
    sources.write("a", 40)
    assert [record.timestamp_ns for record in fan] == [40]


def test_seeking_a_sequence_number_is_not_supported(sources):
    sources.write("a", 1)
    fan = sources.fan()
    assert "seek_seq" not in fan.caps
    with pytest.raises(tw.InvalidOption, match="seq=0"):
        fan.seek_seq(0)


def test_damage_is_raised_until_it_is_skipped_and_then_all_continue(sources):
    sources.write("a", 1, 3, 5, payload=b"x" * 40).write("b", 2, 4, 6)
    segment = sources.path("a") / "000000000.q"
    with open(segment, "r+b") as file:
        file.seek(64 + 128 + 64)  # the payload of a's second record
        file.write(b"\xff")
    fan = sources.fan()
    assert [fan.next().timestamp_ns for _ in range(1)] == [1]
    for _ in range(2):
        with pytest.raises(tw.ChecksumMismatch) as caught:
            fan.next()
    assert caught.value.path == str(segment)
    assert fan.skip_damaged().bytes == 128
    assert [record.timestamp_ns for record in fan] == [2, 4, 5, 6]
    assert fan.skip_damaged().bytes == 0


def test_a_batch_has_the_records_before_damage_is_raised(sources):
    sources.write("a", 1, 2, 3, payload=b"x" * 40)
    with open(sources.path("a") / "000000000.q", "r+b") as file:
        file.seek(64 + 128 + 64)
        file.write(b"\xff")
    fan = sources.fan()
    assert fan.read_batch().seq.tolist() == [0]
    with pytest.raises(tw.ChecksumMismatch):
        fan.read_batch()


@pytest.mark.parametrize("batched", [False, True])
def test_a_gap_is_raised_once(sources, tmp, batched):
    sources.write("b", 5)
    sources.stop("b")
    path = tmp / "gap"
    qf.write_queue(path, [[qf.record(seq, b"x", timestamp_ns=seq) for seq in (0, 2, 3)]])
    fan = bus.FanInReader({"a": tw.open_log(path), "b": tw.open_log(sources.path("b"))})
    got, gaps = [], []
    while True:
        try:
            new = list(fan.read_batch()) if batched else [fan.next()]
        except tw.GapDetected as gap:
            gaps.append((gap.first, gap.last))
            continue
        if not new or new == [None]:
            break
        got += [(record.source, record.seq) for record in new]
    assert got == [("a", 0), ("a", 2), ("a", 3), ("b", 0)]
    assert gaps == [(1, 1)]
    fan.close()


def test_a_fan_in_may_be_a_source(sources):
    sources.write("a", 1, 4).write("b", 2, 5).write("c", 3)
    inner = bus.FanInReader(sources.readers("a", "b"))
    outer = bus.FanInReader({"inner": inner, "c": tw.open_log(sources.path("c"))})
    assert [(record.timestamp_ns, record.source) for record in outer] == [
        (1, "inner"), (2, "inner"), (3, "c"), (4, "inner"), (5, "inner")
    ]  # fmt: skip
    with pytest.raises(tw.ConcurrentUse):
        inner.next()
    assert inner.sources == {"a": (2, 0), "b": (2, 0)}
    outer.close()
    inner.close()


def test_a_forked_child_is_refused(sources):
    sources.write("a", 1, 2).write("b", 1)
    fan = sources.fan()
    fan.next()
    pid = os.fork()
    if pid == 0:
        try:
            fan.next()
        except tw.ForkedHandle:
            os._exit(42)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert len(given(fan)) == 2


def test_a_signal_handler_may_close_fan_in_and_readers_during_a_wait(sources):
    sources.write("a").write("b")
    fan = sources.fan()
    reader = fan.readers["a"]

    def handler(signum, frame):
        reader.close()
        fan.close()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert fan.wait(30) is False
    finally:
        signal.signal(signal.SIGALRM, before)
    assert fan.closed
    assert reader.closed


def test_another_thread_closing_a_reader_waits_for_the_current_call(sources):
    sources.write("a").write("b")
    fan = sources.fan()
    reader = fan.readers["a"]
    waiting = threading.Thread(target=fan.wait, args=[0.3])
    waiting.start()
    while "in use" not in repr(fan) and waiting.is_alive():
        pass
    with pytest.raises(tw.ConcurrentUse):
        reader.commit()
    reader.close()
    waiting.join()
    assert list(fan.readers) == ["b"]


def test_the_repr_has_the_sources(sources):
    sources.write("a", 1).write("b", 2)
    fan = sources.fan(max_skew=0.5)
    fan.next()
    assert repr(fan) == "<FanInReader of a, b, max_skew=0.5 last_seq=0>"
    fan.close()
    assert repr(fan) == "<FanInReader closed>"
