"""Opening a writer on the files of a crash."""

import logging
import struct

import pytest

import tapewire as tw
from tests.crash import disk
from tests.crash.tape import TYPE, Tape, payload_of

SEGMENT = 8192


@pytest.fixture
def queue(tmp):
    return tmp / "queue"


@pytest.fixture
def crashed(queue, crew, eventually):
    """`crashed(records)`: a queue whose writer was killed after so many appends."""

    def make(records, size=None, **options):
        writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT, **options)
        writer.expect("open")
        writer.say("append", records, *([] if size is None else [size]))
        writer.expect("done")
        if options.get("preallocate", True):
            eventually(
                lambda: disk.segments(queue)[-1] == disk.control(queue, disk.CURRENT_SEGMENT) + 1
            )
        assert writer.kill() == -9
        return queue

    return make


def numbers(queue):
    """The records of a new reader, with each gap as the pair of its ends."""
    seen = []
    with tw.open_log(queue) as reader:
        while True:
            try:
                record = reader.next()
            except tw.GapDetected as gap:
                seen.append((gap.first, gap.last))
                continue
            if record is None:
                return seen
            seen.append(record.seq)


def append(writer, count):
    for _ in range(count):
        writer.append(TYPE, payload_of(writer.next_seq))


WRONG_LENGTHS = {
    "beyond the segment": lambda place: 0xFFFFFFFF,
    "over its neighbours": lambda place: place.length + 1 + 640,
    "too short": lambda place: max(place.length - 64, 0) // 2 + 2,
    "zero": lambda place: 0,
}


@pytest.mark.parametrize("size", [0, 63, 64, 200])
@pytest.mark.parametrize("wrong", WRONG_LENGTHS)
def test_a_wrong_length_in_the_last_segment_costs_one_record(crashed, caplog, size, wrong):
    queue = crashed(20, size)
    bad = disk.places(queue, 0)[7]
    disk.poke(disk.segment(queue, 0), bad.offset, struct.pack("<I", WRONG_LENGTHS[wrong](bad)))
    original = disk.segment(queue, 0).read_bytes()
    with caplog.at_level(logging.WARNING, "tapewire.queue"), tw.open_publisher(queue) as writer:
        assert writer.next_seq == 20
        assert writer.metrics()["damaged_spans"] == 1
        assert writer.append(TYPE, b"goes on") == 20
    assert "damaged" in caplog.text
    assert str(disk.segment(queue, 0)) in caplog.text
    assert (queue / "000000000.q.damaged").read_bytes() == original
    assert numbers(queue) == [*range(7), (7, 7), *range(8, 21)]
    pad = disk.places(queue, 0)[7]
    assert (pad.type_id, pad.offset, pad.end) == (disk.PAD, bad.offset, bad.end)


@pytest.mark.parametrize("size", [0, 64, 200])
@pytest.mark.parametrize("first", [0, 18])
def test_damage_at_the_first_and_the_last_but_one_record_keeps_what_follows(crashed, size, first):
    queue = crashed(20, size)
    bad = disk.places(queue, 0)[first]
    disk.poke(disk.segment(queue, 0), bad.offset, struct.pack("<I", 0xFFFFFFFF))
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 20
    assert numbers(queue) == [*range(first), (first, first), *range(first + 1, 20)]


def test_damage_in_two_places_of_one_segment_is_fenced_off_twice(crashed):
    queue = crashed(20, 100)
    for index in (3, 11):
        disk.poke(
            disk.segment(queue, 0), disk.places(queue, 0)[index].offset + 8, b"\xff" * 8
        )  # the sequence number: the chain of lengths stays intact, so that `places` finds both
    with tw.open_publisher(queue) as writer:
        assert writer.metrics()["damaged_spans"] == 2
    assert numbers(queue) == [0, 1, 2, (3, 3), *range(4, 11), (11, 11), *range(12, 20)]


def test_the_second_recovery_of_a_damaged_segment_finds_nothing_left_to_do(crashed):
    queue = crashed(20, 100)
    disk.poke(
        disk.segment(queue, 0), disk.places(queue, 0)[7].offset, struct.pack("<I", 0xFFFFFFFF)
    )
    with tw.open_publisher(queue):
        pass
    with tw.open_publisher(queue) as writer:
        assert writer.metrics()["damaged_spans"] == 0
        assert writer.next_seq == 20


HALF_WRITTEN = {
    "a payload": lambda end: (end + 64, b"\xab" * 100),
    "the end of a payload": lambda end: (end + 64 + 512, b"\xab"),
    "a header": lambda end: (end + 4, struct.pack("<IQQHHII", 1, 8, 1, TYPE, 0, 7, 9)),
    "a header and a payload": lambda end: (
        end + 4,
        struct.pack("<IQQHHII", 1, 8, 1, TYPE, 0, 7, 9) + bytes(28) + b"\xab" * 200,
    ),
}


@pytest.mark.parametrize("what", HALF_WRITTEN)
def test_half_a_record_at_the_tail_is_fenced_off_and_the_log_continues(crashed, crew, what):
    queue = crashed(8)
    end = disk.end_of(queue, 0)
    offset, data = HALF_WRITTEN[what](end)
    disk.poke(disk.segment(queue, 0), offset, data)
    reader = crew.start("actors.parker", queue=str(queue))  # before it, without a writer
    reader.expect("open")
    assert [reader.expect("read")[0] for _ in range(8)] == list(range(8))
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 8
        metrics = writer.metrics()
        assert (metrics["recovered_pads"], metrics["damaged_spans"]) == (1, 0)
        append(writer, 3)
        assert [reader.expect("read")[0] for _ in range(3)] == [8, 9, 10]
    pad = disk.places(queue, 0)[-1]
    assert (pad.type_id, pad.offset, pad.end) == (disk.PAD, end, SEGMENT)
    assert disk.is_sealed(queue, 0)
    assert [place.seq for place in disk.places(queue, 1)] == [8, 9, 10]
    assert not (queue / "000000000.q.damaged").exists()
    assert numbers(queue) == list(range(11))


def test_half_a_header_in_the_last_64_bytes_is_fenced_off(crashed):
    queue = crashed(1, SEGMENT - 64 - 64 - 64)
    disk.poke(disk.segment(queue, 0), SEGMENT - 56, b"\x01")
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 1
        append(writer, 1)
    assert disk.places(queue, 0)[-1] == disk.Place(SEGMENT - 64, 0, 0, disk.PAD)
    assert numbers(queue) == [0, 1]


@pytest.mark.parametrize("sealed", [False, True])
def test_garbage_in_a_segment_published_ahead_stops_no_writer(crashed, sealed):
    # Unsealed: power was lost, the page with SEALED after the page with the garbage.
    queue = crashed(4)
    disk.poke(disk.segment(queue, 1), disk.DATA + 100, b"\xde\xad")
    if sealed:
        disk.set_flags(queue, 0, disk.SEALED)
        disk.set_control(queue, disk.CURRENT_SEGMENT, 1)
        disk.set_control(queue, disk.WRITE_OFFSET, disk.DATA)
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 4
        append(writer, 100)
    assert numbers(queue) == list(range(104))


def test_a_prepared_segment_whose_header_was_lost_gets_it_again(crashed, caplog):
    queue = crashed(4)
    disk.poke(disk.segment(queue, 1), 0, bytes(64))
    with caplog.at_level(logging.WARNING, "tapewire.queue"), tw.open_publisher(queue) as writer:
        append(writer, 100)
    assert "header" in caplog.text
    assert numbers(queue) == list(range(104))


def test_records_after_the_lost_first_page_of_the_newest_segment_stay(crashed):
    queue = crashed(45, 200, preallocate=False)
    newest = disk.segments(queue)[-1]
    records = disk.places(queue, newest)
    disk.poke(disk.segment(queue, newest), 0, bytes(4096))
    lost = [place.seq for place in records if place.offset < 4096]
    kept = [place.seq for place in records if place.offset >= 4096]
    assert lost
    assert kept
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 45
        assert writer.metrics()["damaged_spans"] == 1
    before = range(lost[0])
    assert numbers(queue) == [*before, (lost[0], lost[-1]), *kept]


@pytest.mark.parametrize("size", [0, 4096])
def test_a_newest_segment_of_which_nothing_reached_the_disk_is_made_again(crashed, caplog, size):
    queue = crashed(4)
    disk.segment(queue, 1).write_bytes(bytes(size))
    with caplog.at_level(logging.WARNING, "tapewire.queue"), tw.open_publisher(queue) as writer:
        append(writer, 100)
    assert "000000001.q" in caplog.text
    assert numbers(queue) == list(range(104))


def test_a_newest_segment_cut_short_with_data_in_it_is_refused_by_name(crashed):
    queue = crashed(4, preallocate=False)
    whole = disk.segment(queue, 0).read_bytes()
    disk.segment(queue, 0).write_bytes(whole[:4096])
    with pytest.raises(tw.CorruptMetadata) as refused:
        tw.open_publisher(queue)
    assert refused.value.path == str(disk.segment(queue, 0))
    assert "size=4096" in str(refused.value)
    assert disk.segment(queue, 0).read_bytes() == whole[:4096]


def test_opening_seals_every_segment_below_the_one_it_appends_to(crashed):
    queue = crashed(200)
    last = disk.control(queue, disk.CURRENT_SEGMENT)
    assert last >= 4
    for number in range(last):
        disk.set_flags(queue, number, 0)
    with tw.open_publisher(queue):
        assert all(disk.is_sealed(queue, number) for number in range(last))
        assert not disk.is_sealed(queue, last)
    assert numbers(queue) == list(range(200))


def test_leftover_temporary_files_are_removed(crashed):
    queue = crashed(4)
    leftovers = [
        "000000002.q.tmp",
        "000000000.idx.tmp",
        "control.meta.tmp",
        "000000000.q.damaged.tmp",
    ]
    for name in leftovers:
        (queue / name).write_bytes(b"half")
    with tw.open_publisher(queue) as writer:
        assert not [path.name for path in queue.iterdir() if path.name in leftovers]
        append(writer, 100)
    assert numbers(queue) == list(range(104))


def test_a_seqlock_left_odd_blocks_neither_readers_nor_the_next_writer(crashed, eventually):
    queue = crashed(4)
    odd = disk.control(queue, disk.SEGMENT_GEN) | 1
    disk.set_control(queue, disk.SEGMENT_GEN, odd)
    assert numbers(queue) == [0, 1, 2, 3]
    with tw.open_subscriber(queue, "late", start="latest") as reader:
        assert reader.wait(0.01) is False
        with tw.open_publisher(queue, retention=tw.Retention(reader_ttl=0.01)) as writer:
            assert disk.control(queue, disk.SEGMENT_GEN) % 2 == 0
            append(writer, 1)
        assert reader.next().seq == 4


@pytest.mark.parametrize("hint", [(0, 64), (7, 64), (0, 2**63), (2**32 - 1, 2**64 - 1)])
def test_position_hints_of_control_never_decide_what_is_there(crashed, hint):
    queue = crashed(20)
    disk.set_control(queue, disk.CURRENT_SEGMENT, hint[0])
    disk.set_control(queue, disk.WRITE_OFFSET, hint[1])
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 20
        append(writer, 20)
    assert numbers(queue) == list(range(40))


def test_a_writer_killed_while_it_created_the_queue_is_followed_by_one_that_does(queue):
    queue.mkdir()
    (queue / "control.meta.tmp").write_bytes(b"\x4e\x52\x48\x43")
    with pytest.raises(FileNotFoundError):
        tw.open_subscriber(queue, "early")
    with tw.open_publisher(queue, segment_bytes=SEGMENT) as writer:
        append(writer, 1)
    assert numbers(queue) == [0]


def test_a_queue_without_its_first_segment_gets_one_from_the_next_writer(queue):
    with tw.open_publisher(queue, segment_bytes=SEGMENT, first_seq=7):
        pass
    for path in [*queue.glob("*.q"), *queue.glob("*.idx"), queue / "index.meta"]:
        path.unlink(missing_ok=True)
    with pytest.raises(tw.SegmentMissing):
        tw.open_subscriber(queue, "early")
    with tw.open_publisher(queue) as writer:
        assert writer.append(TYPE, payload_of(7)) == 7
    assert numbers(queue) == [7]


def test_a_reader_killed_inside_its_very_first_store_has_committed_nothing(crashed):
    # 16 of the 40 bytes of slot 1 (generation 1) had been stored; slot 0 was never used.
    queue = crashed(5)
    (queue / "readers").mkdir()
    (queue / "readers" / "torn.meta").write_bytes(bytes(40) + struct.pack("<QQ", 0, 64) + bytes(24))
    with tw.open_subscriber(queue, "torn") as reader:
        assert reader.next().seq == 0


@pytest.mark.parametrize("kept", [0, 8, 16, 24, 32, 36])
def test_a_commit_torn_by_a_kill_leaves_the_one_before_it(crashed, kept):
    queue = crashed(5)
    meta = queue / "readers" / "torn.meta"
    with tw.open_subscriber(queue, "torn") as reader:
        reader.next()
        reader.commit()
        before = meta.read_bytes()
        reader.next()
        reader.commit()
        after = meta.read_bytes()
    changed = 0 if before[:40] != after[:40] else 40
    # An interrupted store: the new slot's first bytes over the old slot's.
    meta.write_bytes(
        after[:changed]
        + after[changed : changed + kept]
        + before[changed + kept : changed + 40]
        + after[changed + 40 :]
    )
    with tw.open_subscriber(queue, "torn") as reader:
        assert reader.next().seq == (2 if kept == 36 else 1)


def test_sequence_continues_after_retention_has_taken_the_checkpoints_segment(
    queue, crew, eventually
):
    options = {"segment_bytes": SEGMENT, "retention": {"reader_ttl": 0.001}}
    writer = crew.start("actors.appender", queue=str(queue), **options)
    writer.expect("open")
    writer.say("append", 10)
    writer.expect("done")
    with tw.open_subscriber(queue, "r", pinned=True) as reader:
        writer.say("append", 300)
        writer.expect("done")
        Tape(reader).to_end()
        reader.commit()
        eventually(lambda: disk.segments(queue)[0] > 2)
    writer.kill()
    with tw.open_publisher(queue) as heir:
        assert heir.next_seq == 310
    assert numbers(queue)[-1] == 309
