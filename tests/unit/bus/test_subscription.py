"""A subscriber waits for its queue and detects that the writer ended or is back."""

import asyncio
import shutil
import threading

import pytest

import tapewire as tw
from tapewire import bus
from tests.crash import disk
from tests.support.processes import WRITER, Child

SEGMENT = 65536


def publish(queue, **options):
    return tw.open_publisher(queue, segment_bytes=SEGMENT, preallocate=False, **options)


@pytest.fixture
def queue(tmp):
    return tmp / "queue"


@pytest.fixture
def discovery(queue):
    with bus.SubscriberDiscovery(queue, "strategy_a", ttl=5.0) as discovery:
        yield discovery


def test_it_waits_until_the_queue_has_a_writer(discovery, queue):
    for _ in range(2):
        assert discovery.poll() == bus.Waiting("no queue")
    with publish(queue) as writer:
        writer.append(1, b"first")
        event = discovery.poll()
        assert isinstance(event, bus.Connected)
        assert bytes(event.reader.next().payload) == b"first"
        assert event.reader.name == "strategy_a"
        assert discovery.poll() is None


def test_it_waits_for_a_live_writer(discovery, queue):
    publish(queue).close()
    assert discovery.poll() == bus.Waiting("the queue has no live writer")
    with publish(queue):
        assert isinstance(discovery.poll(), bus.Connected)


def test_a_closed_writer_is_a_lost_lock_and_a_new_one_has_the_same_reader(discovery, queue):
    with publish(queue) as writer:
        reader = discovery.poll().reader
        writer.append(1, b"last words")
    assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.LOCK_LOST)
    assert discovery.poll() == bus.Waiting("the writer ended: lock_lost"), (
        "reported once, then waited for"
    )
    assert bytes(reader.next().payload) == b"last words", "what is left can be read"
    with publish(queue) as writer:
        assert discovery.poll() == bus.Connected(reader)
        writer.append(1, b"hello again")
        assert bytes(reader.next().payload) == b"hello again"


def test_a_writer_replaced_between_two_polls_is_reported_once(discovery, queue):
    with publish(queue):
        reader = discovery.poll().reader
    with publish(queue):
        assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.LOCK_LOST)
        assert discovery.poll() == bus.Connected(reader)
        assert discovery.poll() is None


def test_a_killed_and_a_stopped_writer_are_detected(queue, eventually):
    with (
        bus.SubscriberDiscovery(queue, "strategy_a", ttl=0.5) as discovery,
        Child(WRITER, queue, SEGMENT) as child,
    ):
        child.expect("ready")
        assert isinstance(discovery.poll(), bus.Connected)
        child.stop()
        gone = eventually(discovery.poll)
        assert gone == bus.Disconnected(tw.DisconnectReason.HEARTBEAT_STALE)
        child.resume()
        assert eventually(lambda: isinstance(discovery.poll(), bus.Connected))
        child.kill()
        gone = eventually(discovery.poll)
        assert gone == bus.Disconnected(tw.DisconnectReason.LOCK_LOST)


def test_a_removed_queue_is_disconnected_and_its_replacement_is_read_from_the_start(
    discovery, queue
):
    with publish(queue) as writer:
        writer.append(1, b"old")
        old = discovery.poll().reader
    assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.LOCK_LOST)
    shutil.rmtree(queue)
    assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.SEGMENT_MISSING)
    assert isinstance(discovery.poll(), bus.Waiting)
    with publish(queue) as writer:
        writer.append(1, b"new")
        new = discovery.poll().reader
        assert new is not old
        assert old.closed
        assert bytes(new.next().payload) == b"new"


def test_a_queue_is_disconnected_as_soon_as_its_segments_are_removed(discovery, queue):
    writer = publish(queue)
    assert isinstance(discovery.poll(), bus.Connected)
    for segment in queue.glob("*.q"):
        segment.unlink()
    assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.SEGMENT_MISSING)
    assert discovery.poll() == bus.Waiting("the writer ended: segment_missing")
    with pytest.raises(tw.SegmentMissing):
        writer.close()


def test_a_queue_replaced_between_two_polls_is_a_disconnect_first(discovery, queue):
    replaced = publish(queue)
    old = discovery.poll().reader
    queue.rename(queue.with_name("away"))
    with publish(queue):
        assert discovery.poll() == bus.Disconnected(tw.DisconnectReason.SEGMENT_MISSING)
        assert discovery.poll().reader is not old
    with pytest.raises(tw.LockLost):
        replaced.close()


def test_segments_that_retention_removes_are_not_a_disconnect(discovery, queue, eventually):
    with publish(queue, retention=tw.Retention(reader_ttl=30.0)) as writer:
        reader = discovery.poll().reader
        for _ in range(2_000):
            writer.append(1, bytes(200))
        assert sum(1 for _ in reader) == 2_000
        reader.commit()
        eventually(lambda: not (queue / "000000000.q").exists())
        assert discovery.poll() is None


def test_ready_only_waits_for_ready(queue):
    with (
        bus.SubscriberDiscovery(queue, "strategy_a", ready_only=True) as discovery,
        publish(queue),
    ):
        assert discovery.poll() == bus.Waiting("the queue is not READY")
        bus.mark_ready(queue)
        assert isinstance(discovery.poll(), bus.Connected)


def test_it_waits_for_a_name_that_is_held_without_trying_to_open(discovery, queue, monkeypatch):
    with publish(queue), tw.open_subscriber(queue, "strategy_a"):
        with monkeypatch.context() as patch:
            patch.setattr(bus.subscription, "open_subscriber", None)  # would retry for 100 ms
            waiting = discovery.poll()
        assert waiting == bus.Waiting("another reader has the name 'strategy_a'")
    with publish(queue):
        assert isinstance(discovery.poll(), bus.Connected)


@pytest.mark.parametrize("what", ["name", "queue"])
def test_it_waits_for_what_is_lost_between_check_and_open(discovery, queue, monkeypatch, what):
    def lose(*_):
        if what == "queue":
            queue.rename(queue.with_name("away"))
        return False

    monkeypatch.setattr(bus.subscription, "name_is_held", lose)
    with publish(queue), tw.open_subscriber(queue, "strategy_a"):
        disk.await_beats(queue)  # else the heartbeat finds that the lock files are gone
        missing = {
            "name": "another reader has the name 'strategy_a'",
            "queue": "no queue",
        }
        assert discovery.poll() == bus.Waiting(missing[what])
        if what == "queue":
            queue.with_name("away").rename(queue)


def test_a_reader_that_its_user_closed_is_opened_again_after_its_commit(discovery, queue):
    with publish(queue) as writer:
        writer.append_batch(1, [b"a", b"b"])
        first = discovery.poll().reader
        first.next()
        first.commit()
        first.close()
        assert discovery.poll().reader.next().seq == 1


def test_start_counts_for_the_first_opening(queue):
    with publish(queue) as writer:
        writer.append_batch(1, [b"a", b"b"])
        with bus.SubscriberDiscovery(queue, "late", start="latest", types={1}) as discovery:
            reader = discovery.poll().reader
            assert reader.next() is None
            writer.append(1, b"c")
            reader.close()
            assert discovery.poll().reader.next().seq == 2


def test_a_damaged_queue_is_a_typed_error(discovery, queue):
    publish(queue).close()
    (queue / "control.meta").write_bytes(b"not a queue")
    with pytest.raises(tw.TapewireError):
        discovery.poll()


def test_another_thread_may_read_while_this_one_polls(discovery, queue):
    with publish(queue) as writer:
        reader = discovery.poll().reader
        seen, stop = [], threading.Event()

        def read():
            try:
                while not stop.is_set():
                    seen.extend(record.seq for record in reader)
            except BaseException as error:
                seen.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for _ in range(300):
                writer.append(1, b"x")
                assert discovery.poll() is None
        finally:
            stop.set()
            thread.join()
        seen += [record.seq for record in reader]
        assert seen == list(range(300))


def test_closing_closes_the_reader_and_can_forget_it(queue):
    with publish(queue):
        discovery = bus.SubscriberDiscovery(queue, "strategy_a")
        reader = discovery.poll().reader
        discovery.close(forget=True)
        discovery.close()
        assert reader.closed
        assert not (queue / "readers" / "strategy_a.meta").exists()
        with pytest.raises(tw.ClosedHandle):
            discovery.poll()


@pytest.mark.parametrize(
    "options", [{"ttl": -1}, {"interval": 0}, {"name": "a/b"}, {"create_timeout": 1.0}]
)
def test_invalid_options_are_refused_immediately(queue, options):
    with pytest.raises((ValueError, TypeError)):
        bus.SubscriberDiscovery(queue, **{"name": "strategy_a", **options})


def test_async_for_yields_the_transitions(queue):
    async def main():
        seen = []
        writer = None
        with bus.SubscriberDiscovery(queue, "strategy_a", interval=0.001) as discovery:
            async with asyncio.timeout(30):
                async for event in discovery:
                    seen.append(type(event).__name__)
                    if isinstance(event, bus.Waiting):
                        writer = publish(queue)
                    elif isinstance(event, bus.Connected):
                        writer.close()
                    else:
                        discovery.close()
        return seen

    assert asyncio.run(main()) == ["Waiting", "Connected", "Disconnected"]
