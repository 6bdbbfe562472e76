"""Writers and readers killed around a roll, and around a reader asleep in the kernel."""

import os

import pytest

import tapewire as tw
from tests.crash import disk
from tests.crash.tape import TYPE, Tape, payload_of

SEGMENT = 8192


@pytest.fixture
def queue(tmp):
    return tmp / "queue"


def parked(queue, child):
    """Whether the child sleeps in the kernel with its flag set."""
    with open(f"/proc/{child.pid}/stat") as file:
        state = file.read().rpartition(")")[2].split()[0]
    return state == "S" and disk.control(queue, disk.WAITERS_PENDING) == 1


def read_all(queue):
    with tw.open_log(queue) as reader:
        return Tape(reader).to_end()


def heard(reader, count):
    return [reader.expect("read")[0] for _ in range(count)]


def as_the_roll_leaves_it(queue, stage):
    """The steps of a roll from segment 0 to segment 1, up to where the writer died."""
    if stage in ("position", "sealed"):
        disk.set_control(queue, disk.CURRENT_SEGMENT, 1)
        disk.set_control(queue, disk.WRITE_OFFSET, disk.DATA)
    if stage == "sealed":
        disk.set_flags(queue, 0, disk.SEALED)


@pytest.mark.parametrize("stage", ["published", "position", "sealed"])
def test_killed_between_publishing_a_segment_and_its_first_record(queue, crew, eventually, stage):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 5)
    writer.expect("done")
    eventually(lambda: disk.segment(queue, 1).exists())
    reader = crew.start("actors.parker", queue=str(queue))
    reader.expect("open")
    assert heard(reader, 5) == [0, 1, 2, 3, 4]
    eventually(lambda: parked(queue, reader))

    assert writer.kill() == -9
    as_the_roll_leaves_it(queue, stage)
    assert read_all(queue) == 5

    heir = crew.start("actors.appender", queue=str(queue))
    assert heir.expect("open") == [5]
    heir.say("append", 100)
    assert heir.expect("done")[0] == 105
    assert heard(reader, 100) == list(range(5, 105))
    assert read_all(queue) == 105


def test_a_reader_that_starts_at_the_end_of_a_half_done_roll_misses_nothing(
    queue, crew, eventually
):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 5)
    writer.expect("done")
    eventually(lambda: disk.segment(queue, 1).exists())
    writer.kill()
    as_the_roll_leaves_it(queue, "position")
    with tw.open_subscriber(queue, "late", start="latest") as reader:
        heir = crew.start("actors.appender", queue=str(queue))
        heir.say("append", 100)
        heir.expect("open")
        heir.expect("done")
        assert Tape(reader, 5).to_end() == 105


def test_a_parked_reader_continues_if_the_data_is_in_the_next_segment_only(queue, crew, eventually):
    # Segment 0 is full but for 64 bytes: the record that wakes the reader is in segment 1.
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 1, SEGMENT - 64 - 64 - 64)
    writer.expect("done")
    reader = crew.start("actors.parker", queue=str(queue), checked=False)
    reader.expect("open")
    assert heard(reader, 1) == [0]
    eventually(lambda: parked(queue, reader))
    writer.say("append", 1, 1)
    metrics = writer.expect("done")[1]
    assert heard(reader, 1) == [1]
    assert metrics["rolls"] == 1
    assert metrics["wakes"] >= 1
    assert [place.seq for place in disk.places(queue, 1)] == [1]


def test_a_reader_parked_in_an_unsealed_segment_continues_when_a_writer_seals_it(
    queue, crew, eventually
):
    # Power was lost: the next segment and its records reached the disk, SEALED of the old did not.
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 100)
    writer.expect("done")
    writer.kill()
    disk.set_flags(queue, 0, 0)
    in_first = len(disk.places(queue, 0))
    reader = crew.start("actors.parker", queue=str(queue))
    reader.expect("open")
    assert heard(reader, in_first) == list(range(in_first))
    eventually(lambda: parked(queue, reader))
    with tw.open_publisher(queue) as heir:
        assert heir.next_seq == 100
        assert heard(reader, 100 - in_first) == list(range(in_first, 100))


def test_the_first_append_of_a_restarted_writer_wakes_a_parked_reader(queue, crew, eventually):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 3)
    writer.expect("done")
    reader = crew.start("actors.parker", queue=str(queue))
    reader.expect("open")
    heard(reader, 3)
    eventually(lambda: parked(queue, reader))
    writer.kill()
    rung = disk.control(queue, disk.NOTIFY_SEQ)
    heir = crew.start("actors.appender", queue=str(queue))
    heir.expect("open")
    assert disk.control(queue, disk.NOTIFY_SEQ) == rung + 1, "opening a writer always wakes readers"
    eventually(lambda: parked(queue, reader))
    heir.say("append", 1)
    assert heir.expect("done")[1]["wakes"] == 1
    assert heard(reader, 1) == [3]


def test_a_writer_killed_between_clearing_the_flag_and_waking_leaves_no_reader_asleep(
    queue, crew, eventually
):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 1)
    writer.expect("done")
    reader = crew.start("actors.parker", queue=str(queue))
    reader.expect("open")
    heard(reader, 1)
    eventually(lambda: parked(queue, reader))
    writer.kill()
    disk.set_control(queue, disk.WAITERS_PENDING, 0)
    heir = crew.start("actors.appender", queue=str(queue))
    heir.expect("open")
    heir.say("append", 1)
    heir.expect("done")
    assert heard(reader, 1) == [1]


def test_a_roll_right_after_a_restart_finds_its_segment_prepared(queue, crew):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 1, SEGMENT - 64 - 64 - 64)
    writer.expect("done")
    writer.kill()
    with tw.open_publisher(queue, require_prealloc=True, prealloc_wait=0) as heir:
        assert heir.append(TYPE, b"does not fit any more") == 1
        metrics = heir.metrics()
    assert (metrics["rolls"], metrics["prealloc_ready"], metrics["prealloc_misses"]) == (1, 1, 0)


def test_ten_thousand_rolls_at_64_and_0_bytes_left_under_a_parking_reader(queue, crew):
    rolls = 10_000
    with tw.open_publisher(queue, segment_bytes=SEGMENT):
        pass
    reader = crew.start("actors.counter", queue=str(queue), expected=rolls)
    reader.expect("open")
    writer = crew.start("actors.roller", queue=str(queue), rolls=rolls)
    writer.expect("open")
    writer.say("go")
    count, seen_parked, metrics = writer.expect("done", timeout=100)
    assert count == rolls
    assert reader.expect("done", timeout=30) == [True], "the record after the last one"
    assert metrics["rolls"] == rolls - 1
    assert metrics["wakes"] >= seen_parked > rolls // 2, "each raised flag is answered by a wake"


@pytest.mark.parametrize("filling", [b"\xcc", b"\x00"])
def test_a_reservation_of_a_killed_writer_never_becomes_a_record(queue, crew, filling):
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT)
    writer.expect("open")
    writer.say("append", 4)
    writer.expect("done")
    with tw.open_log(queue) as live:
        tape = Tape(live)
        assert tape.to_end() == 4
        writer.say("reserve", 500, filling.hex())
        writer.expect("done")
        assert tape.to_end() == 4
        writer.kill()
        assert tape.to_end() == 4
        with tw.open_publisher(queue) as heir:
            assert heir.next_seq == 4
            assert tape.to_end() == 4
            # A reservation of zeros leaves no trace; the content of any other is unknown.
            assert heir.metrics()["recovered_pads"] == (1 if any(filling) else 0)
            for _ in range(40):
                heir.append(TYPE, payload_of(heir.next_seq))
            assert tape.to_end() == 44
    assert read_all(queue) == 44


def test_a_reservation_aborted_by_an_error_leaves_room_for_small_records(queue):
    with tw.open_publisher(queue, segment_bytes=SEGMENT) as writer, tw.open_log(queue) as live:
        slot = writer.reserve(TYPE, 1000)
        slot.buffer[:] = b"\xee" * 1000
        with pytest.raises(ZeroDivisionError), slot:
            _ = 1 // 0
        for payload in (b"a", b"b", b"c"):
            writer.append(TYPE, payload)
        assert [bytes(record.payload) for record in live] == [b"a", b"b", b"c"]
        assert live.next() is None


def test_a_reader_killed_before_its_first_commit_resumes_at_the_earliest_record(queue, crew):
    with tw.open_publisher(queue, segment_bytes=SEGMENT) as writer:
        for _ in range(50):
            writer.append(TYPE, payload_of(writer.next_seq))
        reader = crew.start("actors.parker", queue=str(queue), name="fresh")
        reader.expect("open")
        heard(reader, 50)
        reader.kill()
        with tw.open_subscriber(queue, "fresh") as again:
            assert again.next().seq == 0


def test_the_name_of_a_killed_reader_is_free_at_once(queue, crew):
    with tw.open_publisher(queue, segment_bytes=SEGMENT):
        reader = crew.start("actors.parker", queue=str(queue), name="taken")
        reader.expect("open")
        with pytest.raises(tw.ReaderAlreadyActive):
            tw.open_subscriber(queue, "taken")
        reader.kill()
        tw.open_subscriber(queue, "taken").close()


def roll_in_a_hurry(queue, crew, rolls):
    for _ in range(os.cpu_count()):
        crew.start("actors.burner").expect("burning")
    writer = crew.start("actors.hurried_roller", queue=str(queue), rolls=rolls)
    count, metrics = writer.expect("done", timeout=110)
    assert count == rolls
    assert metrics["rolls"] == rolls - 1
    assert metrics["prealloc_errors"] == 0


def test_rolls_as_fast_as_they_go_on_busy_cores_lose_nothing(queue, crew):
    roll_in_a_hurry(queue, crew, 1_000)


@pytest.mark.long
def test_many_rolls_as_fast_as_they_go_on_busy_cores_lose_nothing(queue, crew):
    roll_in_a_hurry(queue, crew, 20_000)


def test_restarts_that_require_a_prepared_segment_enter_each_segment_once(queue, crew):
    # A worker that prepares a segment twice makes the next roll enter it again, from its start.
    for _ in range(os.cpu_count()):
        crew.start("actors.burner").expect("burning")
    writer = crew.start("actors.reopener", queue=str(queue), times=100)
    (count,) = writer.expect("done", timeout=110)
    assert read_all(queue) == count == 9000
