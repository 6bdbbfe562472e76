"""A signal handler may close a handle in the middle of any of its calls, errors included."""

import signal
import time

import pytest

import tapewire as tw
from tapewire.callback import RECORD_CALLBACK


@pytest.fixture
def alarm():
    """`alarm(seconds, action)`: a signal that interrupts this thread."""
    before = signal.getsignal(signal.SIGALRM)

    def ring(seconds, action):
        signal.signal(signal.SIGALRM, lambda *_: action())
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# The handler must run while an error is made, when the writer's lock is held.
@pytest.mark.parametrize("moment", range(60))
def test_closing_a_writer_inside_a_failing_append(tmp, alarm, moment):
    writer = tw.open_publisher(tmp / "q", segment_bytes=8192, preallocate=False)
    alarm(0.0002 + moment * 1e-5, writer.close)
    while True:
        with pytest.raises((tw.PayloadTooLarge, tw.ClosedHandle)) as caught:
            writer.append(1, bytes(20_000))
        if caught.type is tw.ClosedHandle:
            break
    assert writer.closed


@pytest.mark.parametrize("moment", range(60))
def test_closing_a_reader_inside_a_failing_read(tmp, alarm, moment):
    with tw.open_publisher(tmp / "q", segment_bytes=8192, preallocate=False) as writer:
        writer.append(1, bytes(100))
    with open(tmp / "q" / "000000000.q", "r+b") as segment:
        segment.seek(131)
        segment.write(b"?")
    reader = tw.open_log(tmp / "q")
    alarm(0.0002 + moment * 1e-5, reader.close)
    while True:
        with pytest.raises((tw.ChecksumMismatch, tw.ClosedHandle)) as caught:
            reader.read_batch()
        if caught.type is tw.ClosedHandle:
            break
    assert reader.closed


def test_closing_a_reader_that_waits(tmp, alarm):
    with tw.open_publisher(tmp / "q", segment_bytes=8192), tw.open_log(tmp / "q") as reader:
        alarm(0.01, reader.close)
        assert reader.wait(30) is False
        assert reader.closed


def test_closing_a_writer_that_waits_for_space(tmp, alarm):
    writer = tw.open_publisher(
        tmp / "q", segment_bytes=8192, max_segments=1, when_full=tw.Block(30)
    )
    alarm(0.05, writer.close)
    for _ in range(7):  # fills a segment
        writer.append(1, bytes(1000))
    with pytest.raises(tw.ClosedHandle):
        writer.append(1, bytes(1000))


def test_closing_a_reader_inside_a_compiled_walk_ends_it(tmp, alarm):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append_batch(1, [b"x"] * 20)
    for follow in (False, True):
        reader = tw.open_log(tmp / "q")
        callback = RECORD_CALLBACK(lambda *_: time.sleep(0.005) is None)
        alarm(0.03, reader.close)
        assert 1 <= reader.for_each(callback, follow=follow) <= 20
        assert reader.closed


def test_a_reader_closed_inside_its_own_callback_is_forgotten_when_asked(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append(1, b"x")
    reader = tw.open_subscriber(tmp / "q", "strategy")
    meta = tmp / "q" / "readers" / "strategy.meta"
    assert meta.exists()

    @RECORD_CALLBACK
    def close(*_):
        reader.close(forget=True)
        return False

    assert reader.for_each(close) == 1
    assert reader.closed
    assert not meta.exists()
