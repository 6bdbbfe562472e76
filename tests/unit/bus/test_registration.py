"""A registration removes its file after a clean end and keeps its position after an error."""

import os
import sys

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.bus.registration import name_is_held
from tests.support.processes import Child


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "queue", segment_bytes=65536, preallocate=False) as writer:
        writer.append_batch(1, [b"a", b"b", b"c"])
        yield tmp / "queue"


def test_the_meta_file_lives_as_long_as_the_block(queue):
    with bus.ReaderRegistration(queue, "router") as registration:
        assert registration.meta_path == queue / "readers" / "router.meta"
        assert registration.meta_path.is_file()
        assert registration.reader.next().seq == 0
    assert os.listdir(queue / "readers") == []
    assert registration.closed
    assert "closed" in repr(registration)


def test_an_error_keeps_the_position_for_the_next_start(queue):
    def fail():
        with bus.ReaderRegistration(queue, "router") as registration:
            registration.reader.next()
            registration.reader.commit()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with bus.ReaderRegistration(queue, "router") as registration:
        assert registration.reader.next().seq == 1


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_and_exit_are_a_clean_end(queue, interruption):
    with pytest.raises(interruption), bus.ReaderRegistration(queue, "router"):
        raise interruption
    assert os.listdir(queue / "readers") == []


def test_options_are_those_of_a_subscriber(queue):
    with bus.ReaderRegistration(queue, "router", start="latest") as registration:
        assert registration.reader.next() is None
    with pytest.raises(TypeError):
        bus.ReaderRegistration(queue, "router", colour="blue")


def test_a_name_that_is_held_or_invalid_is_refused(queue):
    with bus.ReaderRegistration(queue, "router"), pytest.raises(tw.ReaderAlreadyActive):
        bus.ReaderRegistration(queue, "router")
    with pytest.raises(tw.InvalidName):
        bus.ReaderRegistration(queue, "../router")


def test_it_starts_no_python_thread(queue):
    before = sys._current_frames().keys()
    with bus.ReaderRegistration(queue, "router"):
        assert sys._current_frames().keys() == before


HOLDER = """
import sys
from tapewire import bus

with bus.ReaderRegistration(sys.argv[1], "router"):
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_name_is_seen_as_held_from_another_process_until_that_is_killed(queue):
    assert not name_is_held(queue, "router")
    with Child(HOLDER, queue) as child:
        child.expect("ready")
        assert name_is_held(queue, "router")
        child.kill()
        assert not name_is_held(queue, "router")
        assert (queue / "readers" / "router.meta").exists(), "a killed one cannot clean up"
