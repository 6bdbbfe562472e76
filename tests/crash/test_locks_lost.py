"""Lock files removed or replaced under a writer: no second one opens, the first one stops."""

import contextlib
import os
from pathlib import Path

import pytest

import tapewire as tw
from tapewire.queue.repair import repair
from tests.crash import disk
from tests.crash.tape import TYPE, Tape, payload_of
from tests.support.queue_format import LAYOUTS

REMOVED = {
    "writer.lock": ["writer.lock"],
    "writer.guard": ["writer.guard"],
    "both": ["writer.lock", "writer.guard"],
}
EPOCH = (LAYOUTS["ControlBlock"][1]["writer_epoch"][0], "<Q")


@pytest.fixture
def queue(tmp):
    return tmp / "queue"


@pytest.fixture
def writer(queue):
    first = tw.open_publisher(queue, segment_bytes=64 << 10)
    for _ in range(20):
        first.append(TYPE, payload_of(first.next_seq))
    first.flush_sync()
    yield first
    with contextlib.suppress(tw.LockLost):
        first.close()


def append_until_it_stops(writer, eventually):
    """Appends now and then until the writer raises; the error."""

    def stopped():
        try:
            writer.append(TYPE, payload_of(writer.next_seq))
        except tw.LockLost as error:
            return error

    return eventually(stopped)


@pytest.mark.parametrize("names", REMOVED.values(), ids=REMOVED)
def test_a_second_writer_is_refused_though_lock_files_are_gone(writer, queue, names):
    for name in names:
        os.unlink(queue / name)
    for _ in range(2):  # the first attempt makes the files again
        with pytest.raises(tw.WriterAlreadyActive):
            tw.open_publisher(queue)


@pytest.mark.parametrize("names", REMOVED.values(), ids=REMOVED)
def test_a_writer_whose_lock_files_are_removed_stops(writer, queue, names, eventually):
    for name in names:
        os.unlink(queue / name)
    error = append_until_it_stops(writer, eventually)
    assert any(str(queue / name) in str(error) for name in names), error
    for call in (
        lambda: writer.append(TYPE, b"again"),
        lambda: writer.append_batch(TYPE, [b"again"]),
        lambda: writer.reserve(TYPE, 1),
        writer.flush_sync,
        writer.flush_async,
    ):
        with pytest.raises(tw.LockLost):
            call()


@pytest.mark.parametrize("name", ["writer.lock", "writer.guard", "control.meta"])
def test_a_writer_whose_lock_file_is_replaced_stops(writer, queue, name, eventually):
    disk.replace(queue / name)
    error = append_until_it_stops(writer, eventually)
    assert str(queue / name) in str(error)


def knows(writer):
    try:
        writer.flush_async()  # only checks the result of the heartbeat
    except tw.LockLost:
        return True
    return False


@pytest.mark.long
def test_an_idle_writer_stops_within_ten_seconds(writer, queue, eventually):
    os.unlink(queue / "writer.lock")
    eventually(lambda: knows(writer), timeout=20)
    with pytest.raises(tw.LockLost):
        writer.append(TYPE, payload_of(writer.next_seq))


@pytest.mark.parametrize("call", ["flush_sync", "close"])
@pytest.mark.parametrize("names", REMOVED.values(), ids=REMOVED)
def test_an_idle_writer_acknowledges_nothing_once_its_lock_files_are_removed(
    writer, queue, names, call
):
    """It does not wait for its heartbeat, which checks every ten seconds on an idle queue."""
    for name in names:
        os.unlink(queue / name)
    with pytest.raises(tw.LockLost):
        getattr(writer, call)()


@tw.message(0x2101)
class Note:
    value: tw.u64


CALLS = {
    "append": lambda writer: writer.append(TYPE, b"again"),
    "append of a buffer": lambda writer: writer.append(TYPE, bytearray(b"again")),
    "append_batch": lambda writer: writer.append_batch(TYPE, [b"again"]),
    "append_message": lambda writer: writer.append_message(Note(1)),
    "reserve": lambda writer: writer.reserve(TYPE, 5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_writer_that_knows_that_it_lost_its_lock_writes_nothing(writer, queue, call, eventually):
    os.unlink(queue / "writer.lock")
    with contextlib.suppress(tw.LockLost):
        writer.append_message(Note(0))
    eventually(lambda: knows(writer))
    before = (queue / "000000000.q").read_bytes()
    for _ in range(2):
        with pytest.raises(tw.LockLost):
            call(writer)
    assert (queue / "000000000.q").read_bytes() == before


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_reservation_of_a_writer_that_lost_its_lock_clears_no_record_of_another(
    writer, queue, end
):
    slot = writer.reserve(TYPE, 64)
    disk.set_control(queue, EPOCH, writer.epoch + 1)
    with pytest.raises(tw.LockLost):
        writer.flush_sync()
    slot.buffer[:] = b"x" * 64  # where the other writer has its record by now
    before = (queue / "000000000.q").read_bytes()
    with contextlib.suppress(tw.LockLost):
        getattr(slot, end)()
    del slot
    with pytest.raises(tw.LockLost):
        writer.close()
    assert (queue / "000000000.q").read_bytes() == before


EVERY_LOCK = [*REMOVED["both"], "control.meta"]


def remove_all(queue: Path) -> None:
    for name in EVERY_LOCK:
        os.unlink(queue / name)


def replace_control(queue: Path) -> None:
    for name in REMOVED["both"]:
        os.unlink(queue / name)
    disk.replace(queue / "control.meta")


def damage_control(queue: Path) -> None:
    for name in REMOVED["both"]:
        os.unlink(queue / name)
    with open(queue / "control.meta", "r+b") as file:
        file.write(b"not the magic")


@pytest.mark.parametrize("preallocate", [True, False])
@pytest.mark.parametrize("rolls", [0, 1, 5])
@pytest.mark.parametrize("change", [remove_all, replace_control, damage_control])
def test_no_repair_beside_a_living_writer(tmp, change, rolls, preallocate):
    queue = tmp / "queue"
    writer = tw.open_publisher(queue, segment_bytes=8192, preallocate=preallocate)
    writer.append(TYPE, bytes(5000))
    for _ in range(rolls):
        writer.append(TYPE, bytes(5000))
    writer.flush_sync()
    change(queue)
    for again in (repair, tw.open_publisher):
        with pytest.raises((tw.WriterAlreadyActive, tw.CorruptMetadata)) as refused:
            again(queue)
        assert again is not repair or refused.type is tw.WriterAlreadyActive
    with pytest.raises(tw.LockLost):
        writer.close()
    assert repair(queue).next_seq == rolls + 1


def test_a_forked_child_keeps_no_lock_of_a_segment(tmp):
    queue = tmp / "queue"
    writer = tw.open_publisher(queue, segment_bytes=8192, preallocate=False)
    for _ in range(3):
        writer.append(TYPE, bytes(5000))
    stop, let_stop = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(let_stop)
        os.read(stop, 1)
        os._exit(0)
    try:
        writer.close()
        tw.open_publisher(queue).close()
    finally:
        os.close(let_stop)
        os.waitpid(child, 0)
        os.close(stop)


def test_a_writer_stops_when_the_epoch_is_not_its_own(writer, queue, eventually):
    disk.set_control(queue, EPOCH, writer.epoch + 1)
    error = append_until_it_stops(writer, eventually)
    assert f"epoch={writer.epoch + 1}" in str(error)


def test_closing_after_the_lock_was_lost_raises_and_stores_no_checkpoint(tmp, eventually):
    queue = tmp / "queue"
    writer = tw.open_publisher(queue, segment_bytes=8 << 20)  # no roll until it stops
    checkpoint = (queue / "index.meta").read_bytes()
    os.unlink(queue / "writer.lock")
    append_until_it_stops(writer, eventually)
    with pytest.raises(tw.LockLost):
        writer.close()
    assert writer.closed
    assert (queue / "index.meta").read_bytes() == checkpoint


def test_a_writer_that_lost_its_lock_stores_no_checkpoint_at_a_roll_either(tmp, eventually):
    """The thread that syncs sealed segments stores checkpoints of its own."""
    queue = tmp / "queue"
    writer = tw.open_publisher(queue, segment_bytes=8192, preallocate=False)
    disk.set_control(queue, EPOCH, writer.epoch + 1)

    def stopped():
        try:
            writer.append(TYPE, bytes(3000))
        except tw.LockLost:
            return True

    eventually(stopped)
    await_the_seal_thread(tmp / "other", eventually)
    checkpoint = (queue / "index.meta").read_bytes()
    with pytest.raises(tw.LockLost):
        writer.close()
    assert (queue / "index.meta").read_bytes() == checkpoint


def await_the_seal_thread(queue, eventually):
    """A process has one such thread: when it has sealed for another queue, it is done here."""
    with tw.open_publisher(queue, segment_bytes=8192, preallocate=False) as writer:
        for _ in range(3):
            writer.append(TYPE, bytes(3000))
        eventually(lambda: writer.metrics()["seals"] == 1)


def test_what_both_writers_acknowledged_is_in_the_log(writer, queue, eventually):
    """The first loses all its lock files; the second opens when the first one has stopped."""
    for name in REMOVED["both"]:
        os.unlink(queue / name)
    flushed = 20

    def stopped():
        nonlocal flushed
        try:
            writer.append(TYPE, payload_of(writer.next_seq))
            writer.flush_sync()
        except tw.LockLost:
            return True
        flushed = writer.next_seq

    eventually(stopped)
    with pytest.raises(tw.LockLost):
        writer.close()
    with tw.open_publisher(queue) as second:
        assert second.next_seq >= flushed
        for _ in range(20):
            second.append(TYPE, payload_of(second.next_seq))
        second.flush_sync()
        count = second.next_seq
    with tw.open_log(queue) as reader:
        assert Tape(reader, 0).to_end() == count


def test_the_owner_of_the_queue_is_not_withdrawn_by_a_writer_that_lost_it(
    writer, queue, eventually
):
    disk.replace(queue / "writer.lock")
    named = (queue / "writer.lock").read_bytes()
    append_until_it_stops(writer, eventually)
    with pytest.raises(tw.LockLost):
        writer.close()
    assert (queue / "writer.lock").read_bytes() == named
