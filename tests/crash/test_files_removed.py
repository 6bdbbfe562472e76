"""Files removed or replaced under the writer: what cannot be durable is not acknowledged."""

import contextlib
import os

import pytest

import tapewire as tw
from tests.crash.disk import replace
from tests.crash.scripts import python
from tests.crash.tape import TYPE, payload_of
from tests.support import crafted
from tests.support import queue_format as qf


def remove(path):
    os.unlink(path)


@pytest.fixture
def queue(tmp):
    return tmp / "queue"


@pytest.fixture
def writer(queue):
    opened = tw.open_publisher(queue, segment_bytes=64 << 10)
    for _ in range(20):
        opened.append(TYPE, payload_of(opened.next_seq))
    opened.flush_sync()
    opened.append(TYPE, payload_of(opened.next_seq))
    yield opened
    with contextlib.suppress(tw.TapewireError):
        opened.close()


@pytest.mark.parametrize("change", [remove, replace])
@pytest.mark.parametrize("name", ["000000000.q", "index.meta"])
@pytest.mark.parametrize("call", ["flush_sync", "close"])
def test_what_is_in_a_removed_file_is_not_acknowledged(writer, queue, name, change, call):
    change(queue / name)
    with pytest.raises(tw.SegmentMissing) as caught:
        getattr(writer, call)()
    assert caught.value.path == str(queue / name)


@pytest.mark.parametrize("change", [remove, replace])
@pytest.mark.parametrize("call", ["flush_sync", "close"])
def test_a_removed_control_file_is_not_acknowledged(writer, queue, change, call):
    """Because of the missing file, or of its lock, if a heartbeat notices that first."""
    change(queue / "control.meta")
    with pytest.raises((tw.SegmentMissing, tw.LockLost), match=str(queue / "control.meta")):
        getattr(writer, call)()


@pytest.mark.parametrize("left", [0, 4096])
@pytest.mark.parametrize("call", ["flush_sync", "close"])
def test_a_truncated_segment_is_not_acknowledged(writer, queue, left, call):
    os.truncate(queue / "000000000.q", left)
    for _ in range(2 if call == "flush_sync" else 1):
        with pytest.raises(tw.MappingLost) as caught:
            getattr(writer, call)()
        assert caught.value.path == str(queue / "000000000.q")


def test_the_writer_raises_again_at_every_later_sync(writer, queue):
    remove(queue / "000000000.q")
    for _ in range(3):
        with pytest.raises(tw.SegmentMissing):
            writer.flush_sync()


SEALED = """
    import json, os, sys
    import tapewire as tw

    queue, removed = sys.argv[1], os.path.join(sys.argv[1], "000000000.q")
    writer = tw.open_publisher(queue, segment_bytes=8192, preallocate=False)
    writer.append(1, bytes(5000))
    os.unlink(removed)  # before the roll that seals it
    writer.append(1, bytes(5000))
    assert writer.metrics()["rolls"] == 1
    said = []
    for call in (writer.flush_sync, writer.flush_sync, writer.close):
        try:
            call()
            said.append("acknowledged")
        except tw.SegmentMissing as error:
            said.append(error.path == removed)
    print(json.dumps(said))
"""


def test_a_sealed_segment_removed_before_its_sync_is_not_acknowledged(queue):
    assert python(SEALED, queue).stdout == "[true, true, true]\n"


def test_a_sealed_segment_cut_short_before_its_sync_is_not_acknowledged(queue, eventually):
    """The thread that syncs sealed segments does not store a checkpoint past it either."""
    writer = tw.open_publisher(queue, segment_bytes=64 << 10, preallocate=False)
    writer.append(TYPE, bytes(20_000))
    checkpoint = (queue / "index.meta").read_bytes()
    os.truncate(queue / "000000000.q", 32 << 10)  # to which nothing is written any more
    writer.append(TYPE, bytes(50_000))
    assert writer.metrics()["rolls"] == 1
    eventually(lambda: writer.metrics()["seal_errors"] == 1)
    assert (queue / "index.meta").read_bytes() == checkpoint
    for call in (writer.flush_sync, writer.flush_sync, writer.close):
        with pytest.raises(tw.MappingLost) as caught:
            call()
        assert caught.value.path == str(queue / "000000000.q")


def test_the_seal_thread_stores_no_checkpoint_past_a_removed_segment(queue, eventually):
    writer = tw.open_publisher(queue, segment_bytes=8192, preallocate=False)
    writer.append(TYPE, bytes(5000))
    checkpoint = (queue / "index.meta").read_bytes()
    os.unlink(queue / "000000000.q")
    for _ in range(3):
        writer.append(TYPE, bytes(5000))
    eventually(lambda: writer.metrics()["seals"] == 2)  # of the two that exist
    assert writer.metrics()["seal_errors"] == 1
    assert (queue / "index.meta").read_bytes() == checkpoint
    with pytest.raises(tw.SegmentMissing):
        writer.close()


def test_segments_that_retention_has_removed_are_no_error(queue, eventually):
    with (
        tw.open_publisher(
            queue, segment_bytes=8192, preallocate=False, retention=tw.Retention(reader_ttl=60.0)
        ) as writer,
        tw.open_subscriber(queue, "reader") as reader,
    ):
        for _ in range(200):
            writer.append(TYPE, bytes(3000))
            for _ in reader:
                pass
            reader.commit()
            writer.flush_sync()
        eventually(lambda: writer.metrics()["segments_retired"] > 20)
        assert writer.metrics()["seal_errors"] == 0
        writer.flush_sync()


@pytest.fixture
def inherited(queue):
    """A killed writer's queue of six segments, none of which is known to be on disk."""
    crafted.write_log(queue, [bytes(5000)] * 6, killed=True)
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    return queue


@pytest.mark.parametrize("call", ["flush_sync", "close"])
def test_a_removed_segment_of_a_killed_predecessor_is_not_acknowledged(inherited, call):
    writer = tw.open_publisher(inherited, preallocate=False)
    remove(inherited / "000000001.q")
    for _ in range(2 if call == "flush_sync" else 1):
        with pytest.raises(tw.SegmentMissing) as caught:
            getattr(writer, call)()
        assert caught.value.path == str(inherited / "000000001.q")
    assert qf.parse_checkpoint((inherited / "index.meta").read_bytes()) == (0, 64)
    with contextlib.suppress(tw.SegmentMissing):
        writer.close()


def test_the_seal_thread_stores_no_checkpoint_past_a_removed_inherited_segment(
    inherited, eventually
):
    writer = tw.open_publisher(inherited, preallocate=False)
    remove(inherited / "000000001.q")
    for _ in range(3):
        writer.append(TYPE, bytes(5000))
    eventually(lambda: writer.metrics()["seals"] == 3)
    assert qf.parse_checkpoint((inherited / "index.meta").read_bytes()) == (0, 64)
    with pytest.raises(tw.SegmentMissing):
        writer.close()


def test_an_inherited_segment_that_retention_has_removed_is_no_error(inherited, eventually):
    with (
        tw.open_subscriber(inherited, "reader") as reader,
        tw.open_publisher(
            inherited, preallocate=False, retention=tw.Retention(reader_ttl=60.0)
        ) as writer,
    ):
        assert len(list(reader)) == 6
        reader.commit()
        eventually(lambda: writer.metrics()["segments_retired"] == 5)
        writer.flush_sync()
