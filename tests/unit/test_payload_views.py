"""Payload views are reused once they are unreferenced; a view in use never changes."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import tapewire as tw

PAYLOADS = [bytes([n]) * (n + 1) for n in range(50)]


@pytest.fixture
def reader(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append_batch(1, PAYLOADS)
    with tw.open_log(tmp / "q") as opened:
        yield opened


def test_an_unreferenced_view_is_reused(reader):
    seen = set()
    for record, wanted in zip(reader, PAYLOADS, strict=True):
        view = record.payload
        assert view == wanted
        seen.add(id(view))
    assert len(seen) <= 3


def test_views_in_use_do_not_change(reader):
    held = [record.payload for record in reader]
    assert [bytes(view) for view in held] == PAYLOADS


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_views_in_use_for_a_while_do_not_change(reader, keep):
    held = []
    for number, record in enumerate(reader):
        held.append((number, record.payload))
        del held[: max(0, len(held) - keep)]
        for n, view in held:
            assert view == PAYLOADS[n]


@pytest.mark.parametrize(
    "derive",
    [
        lambda view: view[1:],
        lambda view: view.cast("b"),
        memoryview,
        lambda view: np.frombuffer(view, "u1"),
        iter,
        lambda view: view.toreadonly(),
    ],
)
def test_objects_made_from_a_view_do_not_change(reader, derive):
    made = [derive(record.payload) for record in reader]
    for thing, wanted in zip(made, [bytes(derive(memoryview(p))) for p in PAYLOADS], strict=True):
        assert bytes(thing) == wanted


def test_a_released_view_is_not_reused(reader):
    for record, wanted in zip(reader, PAYLOADS, strict=True):
        with record.payload as view:
            assert view == wanted
        with pytest.raises(ValueError, match="released"):
            view[0]
        assert record.payload == wanted


def test_a_view_does_not_keep_an_older_hash(reader):
    for record, wanted in zip(reader, PAYLOADS, strict=True):
        assert hash(record.payload) == hash(wanted)


def test_a_weak_reference_never_leads_to_another_record(reader):
    weak = []
    for record in reader:
        view = record.payload
        weak.append((bytes(view), weakref.ref(view)))
        del view
    for wanted, reference in weak:
        assert reference() is None or reference() == wanted


def test_one_record_returns_any_number_of_views(reader):
    record = reader.next()
    other = reader.next()
    views = [record.payload, other.payload, record.payload, other.payload]
    assert [bytes(view) for view in views] == [PAYLOADS[0], PAYLOADS[1], PAYLOADS[0], PAYLOADS[1]]
    assert len({id(view) for view in views}) == 4


def test_a_view_is_read_only_after_it_was_reused(reader):
    for record in reader:
        view = record.payload
        assert view.readonly
        with pytest.raises(TypeError, match="not writable"):
            ctypes.c_char.from_buffer(view)
        del view


def test_a_collection_during_next_may_close_the_reader(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(1, b"x")
    reader = tw.open_log(tmp / "q")

    class ClosesTheReader:
        def __del__(self):
            reader.close()

    gc.collect()
    in_a_cycle = ClosesTheReader()
    in_a_cycle.itself = in_a_cycle
    del in_a_cycle
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        record = reader.next()  # allocates objects that the collector counts
    finally:
        gc.set_threshold(*threshold)
    assert record.payload == b"x"
    gc.collect()
    assert reader.closed
