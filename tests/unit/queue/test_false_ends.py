"""A word that became 0 looks like the end of a log: it is reported, and hides no record."""

import fcntl

import pytest

import tapewire as tw
from tapewire.bus import FanInReader
from tapewire.queue import status
from tapewire.queue.repair import repair
from tests.crash.scripts import python
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.commands import tapewire
from tests.support.spark_views import rows

RECORDS = 10_000
LOST = 40
SEGMENT_BYTES = 4 << 20  # all of them in one segment
IN_SEGMENT = (8192 - 64) // 128  # of the smallest
KINDS = {
    "closed": {},
    "killed": {"killed": True},
    "killed, machine restarted": {"killed": True, "restarted": True},
}
ZEROED = {"commit word": 4, "header": 64, "record": 128}


def payload(n):
    return b"payload of %d" % n


def write(tmp, records=RECORDS, **options):
    options = {"segment_bytes": SEGMENT_BYTES, **options}
    return crafted.write_log(tmp / "q", map(payload, range(records)), **options)


def zero(queue, n, length, *, records=1):
    """Zero so many bytes of record `n`, or `records` complete ones; return the offset."""
    segment, place = divmod(n, IN_SEGMENT) if len(qf.segment_ids(queue)) > 1 else (0, n)
    offset = 64 + 128 * place
    crafted.patch(queue, segment, offset, bytes(length if records == 1 else 128 * records))
    return segment, offset


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=ZEROED)
def zeroed(request):
    return ZEROED[request.param]


@pytest.fixture
def log(tmp, kind, zeroed):
    """A log of 10,000 records that seems to end at record 40, and the offset."""
    queue = write(tmp, **kind)
    _, offset = zero(queue, LOST, zeroed)
    return queue, offset


def all_but(*lost, records=RECORDS):
    return [(n, payload(n)) for n in range(records) if n not in lost]


def test_every_way_of_reading_reports_it(log):
    queue, offset = log
    with tw.open_log(queue) as reader:
        assert [reader.next().seq for _ in range(LOST)] == list(range(LOST))
        ways = (reader.next, reader.read_batch, lambda: list(reader), lambda: reader.wait(0))
        for read in ways:
            with pytest.raises(tw.CorruptRecord) as error:
                read()
            assert (error.value.offset, error.value.path) == (
                offset,
                str(qf.segment_path(queue, 0)),
            )
        skipped = reader.skip_damaged()
        assert (skipped.offset, skipped.bytes) == (offset, 128)
        assert (skipped.first_seq, skipped.last_seq) == (LOST, LOST)
        assert [r.seq for r in reader] == list(range(LOST + 1, RECORDS))


def test_a_batch_ends_before_it(log):
    queue, _ = log
    with tw.open_log(queue) as reader:
        assert reader.read_batch(1000).seq.tolist() == list(range(LOST))
        with pytest.raises(tw.CorruptRecord):
            reader.read_batch(1000)


def test_a_fan_in_reports_it(log):
    queue, _ = log
    with tw.open_log(queue) as only, FanInReader({"only": only}) as reader:
        seen = []
        with pytest.raises(tw.CorruptRecord):
            seen.extend(record.seq for record in reader)
        reader.skip_damaged()
        assert len(list(reader)) >= RECORDS - LOST - 1


@pytest.mark.parametrize("by", ["seq", "time"])
def test_a_seek_to_the_lost_record_stops_before_it(log, by):
    queue, offset = log
    with tw.open_log(queue) as reader:
        assert getattr(reader, f"seek_{by}")(LOST)
        with pytest.raises(tw.CorruptRecord) as error:
            reader.next()
        assert error.value.offset == offset


@pytest.mark.parametrize("by", ["seq", "time"])
@pytest.mark.parametrize("wanted", [LOST + 1, 500, 5000, RECORDS - 1])
def test_a_seek_past_it_skips_no_record(log, by, wanted):
    queue, _ = log
    with tw.open_log(queue) as reader:
        assert getattr(reader, f"seek_{by}")(wanted)
        try:
            first = reader.next()
        except tw.CorruptRecord:
            reader.skip_damaged()
            first = next(record for record in reader if record.seq >= wanted)
        assert first.seq == wanted


def test_seek_end_moves_after_the_last_record(log):
    queue, _ = log
    with tw.open_log(queue) as reader:
        reader.seek_end()
        assert reader.next() is None
        with tw.open_publisher(queue, preallocate=False) as writer:
            writer.append(1, b"new")
        assert [bytes(record.payload) for record in reader] == [b"new"]


def test_export_and_verify_report_it(log, tmp):
    queue, _ = log
    exported = tapewire("export", queue, "--to", tmp / "out.csv")
    assert exported.code == 3
    assert not (tmp / "out.csv").exists()
    skipping = tapewire("export", queue, "--to", tmp / "out.csv", "--skip-damaged")
    assert f"{RECORDS - 1:,} records" in skipping.out
    verified = tapewire("verify", queue)
    assert (verified.code, "lost: record 40" in verified.out) == (3, True)


def test_spark_reports_it(log):
    queue, _ = log
    with pytest.raises(tw.CorruptRecord):
        rows(queue, partitions=3)
    read = [row[0] for row in rows(queue, partitions=3, on_damage="skip")]
    assert read == [seq for seq, _ in all_but(LOST)]


def test_repair_fences_the_record_off_and_a_new_one_is_reached(log):
    queue, _ = log
    done = repair(queue)
    assert (done.damaged, done.next_seq) == (1, RECORDS)
    assert crafted.reopen(queue)["next_seq"] == RECORDS
    records, events = crafted.shown(queue)
    assert records == [*all_but(LOST), (RECORDS, b"new")]
    assert events == [("gap", LOST, LOST)]
    assert tapewire("verify", queue).code == 3  # the gap stays


def test_opening_a_writer_restores_the_records_after_it(tmp, kind, zeroed):
    """No entry of the seek index follows it; opening reads everything after the last entry."""
    queue = write(tmp, index_stride=1 << 20, **kind)
    zero(queue, LOST, zeroed)
    metrics = crafted.reopen(queue)
    assert (metrics["damaged_spans"], metrics["next_seq"]) == (1, RECORDS)
    records, events = crafted.shown(queue)
    assert records == [*all_but(LOST), (RECORDS, b"new")]
    assert events == [("gap", LOST, LOST)]


def test_a_record_appended_after_it_is_reached(log):
    queue, _ = log
    crafted.reopen(queue)
    records, _ = crafted.shown(queue)
    assert records == [*all_but(LOST), (RECORDS, b"new")]


@pytest.mark.parametrize("stride", [16, 1 << 20], ids=["indexed", "not indexed"])
def test_a_lost_tail_of_a_closed_log_is_reported_and_its_numbers_are_not_reused(tmp, stride):
    queue = write(tmp, records=1000, index_stride=stride)
    _, offset = zero(queue, 900, 0, records=100)
    (problem,) = status(queue).problems
    assert "records are lost" in problem
    examined = tapewire("doctor", queue)
    assert (examined.code, "records are lost" in examined.out) == (1, True)
    assert tapewire("verify", queue).code == 3
    assert tapewire("export", queue, "--to", tmp / "out.csv").code == 3
    records, events = crafted.shown(queue)
    assert records == all_but(*range(900, 1000), records=1000)
    assert events == [("damage", offset, 900, 999)]
    assert crafted.reopen(queue)["next_seq"] == 1000
    records, events = crafted.shown(queue)
    assert records == [*all_but(*range(900, 1000), records=1000), (1000, b"new")]
    assert events == [("gap", 900, 999)]


@pytest.mark.parametrize("fix", [crafted.reopen, repair], ids=["reopen", "repair"])
def test_a_zeroed_last_record_is_reported_and_its_number_is_not_reused(tmp, fix):
    queue = write(tmp, records=100)
    _, offset = zero(queue, 99, 128)
    assert crafted.shown(queue)[1] == [("damage", offset, 99, 99)]
    assert tapewire("doctor", queue).code == 1
    fix(queue)
    if fix is repair:
        assert crafted.reopen(queue)["next_seq"] == 100
    records, events = crafted.shown(queue)
    assert records[-1] == (100, b"new")
    assert events == [("gap", 99, 99)]


def test_a_zeroed_last_record_of_a_sparse_log_is_reported(tmp):
    queue = write(tmp, records=100, sparse=True)
    _, offset = zero(queue, 99, 128)
    assert crafted.shown(queue)[1] == [("damage", offset, None, None)]
    assert crafted.reopen(queue)["next_seq"] == 100


def test_a_last_segment_with_all_records_zeroed_is_reported(tmp):
    """The segment looks prepared and unused; the checkpoint shows that it was used."""
    queue = write(tmp, records=100, segment_bytes=8192)
    last = qf.segment_ids(queue)[-1]
    lost = [r.seq for segment, r in qf.stored_records(queue) if segment == last]
    crafted.patch(queue, last, 64, bytes(8192 - 64))
    assert crafted.shown(queue)[1] == [("damage", 64, lost[0], lost[-1])]
    assert crafted.reopen(queue)["next_seq"] == 100
    records, events = crafted.shown(queue)
    assert records == [*all_but(*lost, records=100), (100, b"new")]
    assert events == [("gap", lost[0], lost[-1])]


def test_a_zeroed_header_in_a_sealed_segment_loses_only_that_record(tmp):
    queue = write(tmp, records=200, segment_bytes=8192)
    assert len(qf.segment_ids(queue)) > 2
    _, offset = zero(queue, 70, 64)
    assert crafted.shown(queue) == (all_but(70, records=200), [("damage", offset, 70, 70)])
    done = repair(queue)
    assert (done.damaged, done.padded, done.next_seq) == (1, 0, 200)
    assert crafted.pads(queue, 1) == [(offset, offset + 128)]
    assert crafted.shown(queue) == (all_but(70, records=200), [("gap", 70, 70)])


@pytest.mark.parametrize("segment_bytes", [8192, SEGMENT_BYTES], ids=["rolled", "one segment"])
@pytest.mark.parametrize(
    "hint",
    [
        {"write_offset": 64},
        {"write_offset": 5000},
        {"write_offset": 8192},
        {"write_offset": 2**64 - 1},
        {"current_segment": 0},
        {"current_segment": 1},
        {"current_segment": 3},
        {"current_segment": 2**32 - 1},
        {"segment_gen": 1},
    ],
    ids=str,
)
def test_an_invalid_hint_alone_is_not_damage(tmp, kind, hint, segment_bytes):
    queue = write(tmp, records=150, segment_bytes=segment_bytes, **kind)
    crafted.poke_control(queue, **hint)
    assert tapewire("verify", queue).code == 0
    assert crafted.shown(queue) == (all_but(records=150), [])
    with tw.open_subscriber(queue, "follower", start="earliest") as reader:
        assert len(list(reader)) == 150
        assert not reader.wait(0)
    assert crafted.untouched(crafted.reopen(queue))
    assert crafted.shown(queue) == ([*all_but(records=150), (150, b"new")], [])


@pytest.mark.parametrize("lock", [fcntl.LOCK_SH, fcntl.LOCK_EX], ids=["shared", "exclusive"])
def test_a_process_that_may_only_read_does_not_hide_a_lost_end(tmp, lock):
    """The process locks writer.lock, as if a writer were alive."""
    queue = write(tmp, records=20)
    crafted.patch(queue, 0, 64 + 128 * 10, bytes(128 * 10))
    with open(queue / "writer.lock", "rb") as held:
        fcntl.flock(held, lock)
        with tw.open_log(queue) as reader:
            assert len(reader.read_batch(100)) == 10
            with pytest.raises(tw.CorruptRecord):
                reader.next()
        assert not status(queue).writer.alive
        assert tapewire("verify", queue).code == 3
        assert tapewire("doctor", queue).code == 1


KILLED_WITH_AN_OPEN_RESERVATION = """
    import os, signal, sys
    import tapewire as tw

    writer = tw.open_publisher(sys.argv[1], segment_bytes=8192, preallocate=False)
    for n in range(20):
        writer.append(1, b"%d" % n)
    slot = writer.reserve(1, 300)
    slot.buffer[:] = b"x" * 300
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "hint",
    [
        {"write_offset": 64},
        {"write_offset": 64 + 128 * 21},
        {"write_offset": 8192},
        {"write_offset": 1 << 40},
        {"current_segment": 1},
        {"write_offset": 8192, "write_check": 0},
    ],
    ids=str,
)
def test_an_invalid_hint_with_an_open_reservation_is_not_damage(tmp, hint):
    queue = tmp / "q"
    done = python(KILLED_WITH_AN_OPEN_RESERVATION, queue, check=False)
    assert done.returncode == -9
    crafted.drop_torn_indexes(queue)
    crafted.poke_control(queue, **hint)
    assert crafted.read(queue) == ([*range(20)], [])
    assert tapewire("verify", queue).code == 0
    assert (crafted.reopen(queue)["next_seq"], list(queue.glob("*.damaged"))) == (20, [])
    assert crafted.read(queue) == ([*range(21)], [])


def test_a_false_end_in_the_middle_is_seen_from_outside(log):
    """Also before the last entry of the seek index, where counting a live queue starts."""
    queue, offset = log
    problems = status(queue).problems
    assert any(f"at offset {offset}]" in line for line in problems), problems
    assert tapewire("doctor", queue).code == 1
