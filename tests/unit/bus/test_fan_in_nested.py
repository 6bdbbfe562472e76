"""Fan-ins inside fan-ins."""

import threading

import pytest

import tapewire as tw
from tapewire import bus


@pytest.fixture
def nested(sources):
    """`nested({"a": reader}, **outer)`: a fan-in of one fan-in, and the inner one."""
    made = []

    def make(readers, **others):
        inner = bus.FanInReader(readers)
        made.append(bus.FanInReader({"inner": inner} | others))
        return made[-1], inner

    yield make
    for outer in made:
        outer.close()


def test_following_waits_for_the_sources_of_an_inner_fan_in(sources, nested):
    sources.write("a", 20).write("b")
    outer, _ = nested(sources.readers("a", "b"))
    assert list(outer.follow(0)) == []
    assert outer.wait(0) is False
    sources.write("b", 10)
    sources.stop("a")
    sources.stop("b")
    following = outer.follow(10)
    assert [next(following).timestamp_ns for _ in range(2)] == [10, 20]


def test_commit_reaches_the_named_readers_of_an_inner_fan_in(sources, nested):
    sources.write("a", 1, 2).write("b", 3)
    named = tw.open_subscriber(sources.path("a"), "router")
    outer, _ = nested({"a": named, "b": tw.open_log(sources.path("b"))})
    assert len(list(outer)) == 3
    outer.commit()
    assert named.committed == named.position


def test_inner_readers_are_refused_during_a_call_of_the_outermost(sources, nested):
    sources.write("a")
    named = tw.open_subscriber(sources.path("a"), "router")
    outer, inner = nested({"a": named})
    waiting = threading.Thread(target=outer.wait, args=[0.5])
    waiting.start()
    while "in use" not in repr(outer) and waiting.is_alive():
        pass
    for ask in (named.commit, lambda: named.position, lambda: inner.sources):
        with pytest.raises(tw.ConcurrentUse):
            ask()
    assert "in use" in repr(named)
    assert "in use" in repr(inner)
    waiting.join()
    named.commit()


def test_closing_a_reader_two_levels_down_is_refused(sources, nested):
    sources.write("a", 1, 2)
    outer, inner = nested(sources.readers("a"))
    assert outer.next().seq == 0
    with pytest.raises(tw.ConcurrentUse, match="belongs to another one"):
        inner.readers["a"].close()
    assert outer.next().seq == 1
    outer.remove("inner")
    inner.readers["a"].close()
    assert inner.readers == {}


def test_a_batch_of_interleaved_sources_holds_each_mapping_once(sources, nested):
    pyarrow = pytest.importorskip("pyarrow")
    payload = b"longer than what Arrow keeps inline"
    sources.write("a", *range(0, 60, 2), payload=payload).write(
        "b", *range(1, 60, 2), payload=payload
    )
    outer, _ = nested(sources.readers("a", "b"))
    batch = outer.read_batch()
    assert batch.timestamp_ns.tolist() == list(range(60))
    column = pyarrow.record_batch(batch).column("payload")
    assert column.to_pylist() == [payload] * 60
    assert len(column.buffers()) == 2 + 2  # validity, views, and one for each mapping
