"""A segment with a damaged header is reported by every reader, and skipped on request."""

import pytest

import tapewire as tw
from tapewire.damage import skip_damage
from tapewire.queue import status
from tests.support import queue_format as qf
from tests.support.crafted import break_header, shown, write_log
from tests.support.crafted import damage as crafted_damage

RECORDS = 200
PAYLOAD = b"x" * 100
IN_SEGMENT = (8192 - 64) // 128  # records of up to 64 bytes


@pytest.fixture
def log(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        for _ in range(RECORDS):
            writer.append(1, PAYLOAD)
    return tmp / "q"


def damage(log, which):
    """Damage a header; return its segment and the sequence numbers in it."""
    parts = [part for part in status(log).segments if part.holds_records]
    ends = [*(part.first_seq for part in parts[1:]), RECORDS]
    place = range(len(parts))[which]
    break_header(parts[place].path)
    return parts[place], range(parts[place].first_seq, ends[place])


def numbers(reader, skipped):
    found = []
    while True:
        try:
            batch = reader.read_batch()
        except tw.CorruptMetadata as error:
            skipped.append(skip_damage(reader, error))
            assert skipped[-1] is not None
            continue
        if not len(batch):
            return found
        found += batch.seq.tolist()


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_reading_names_the_file_and_the_remedy(log, which):
    segment, lost = damage(log, which)
    with tw.open_log(log) as reader:
        assert not reader.sparse
        for n in range(lost.start):
            assert reader.next().seq == n
        for read in (reader.next, reader.read_batch, lambda: reader.wait(0)):
            with pytest.raises(tw.CorruptMetadata, match="segment header is damaged") as error:
                read()
            assert error.value.path == segment.path
            assert "skip_damaged()" in error.value.hint


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_it_can_be_skipped_and_the_loss_is_reported(log, which):
    _, lost = damage(log, which)
    skipped = []
    with tw.open_log(log) as reader:
        assert numbers(reader, skipped) == [n for n in range(RECORDS) if n not in lost]
    (passed,) = skipped
    known = (None, None) if which == -1 else (lost[0], lost[-1])
    assert (passed.first, passed.last) == known
    assert "8192 bytes of segment" in passed.what


def test_a_segment_that_a_live_writer_has_prepared_is_not_damage(tmp, eventually):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append(1, PAYLOAD)
        eventually((tmp / "q" / "000000001.q").exists)
        break_header(tmp / "q" / "000000001.q")
        with tw.open_log(tmp / "q") as reader, tw.open_log(tmp / "q") as late:
            assert [record.seq for record in reader] == [0]
            late.seek_end()
            assert late.next() is None
            for _ in range(60):
                writer.append(1, PAYLOAD)
            for each in (reader, late):
                with pytest.raises(tw.CorruptMetadata):  # now it is part of the log
                    list(each)


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_the_status_has_the_number_that_a_pinned_reader_reaches(log, which):
    with tw.open_subscriber(log, "r", pinned=True) as reader:
        segments = [part for part in status(log).segments if part.holds_records]
        reader.seek_seq(max(0, segments[which].first_seq - 1))
        if which != 0:
            reader.next()
        reader.commit()
    _, lost = damage(log, which)
    (seen,) = status(log).readers
    assert (seen.next_seq, seen.lag_records) == (lost[0], None)


def test_a_named_reader_resumes_before_and_after_it(log):
    _, lost = damage(log, 0)
    with tw.open_subscriber(log, "r") as reader:
        with pytest.raises(tw.CorruptMetadata):
            reader.next()
        reader.commit()
    with tw.open_subscriber(log, "r") as reader:
        assert numbers(reader, []) == list(range(len(lost), RECORDS))


@pytest.fixture(params=["keyed", "unkeyed"])
def either(request, tmp):
    """Four segments of a log in this format or the previous one, and the payloads."""
    payloads = [b"%d" % n for n in range(4 * IN_SEGMENT)]
    if request.param == "keyed":
        return write_log(tmp / "q", payloads), payloads
    records = [qf.record(n, payload) for n, payload in enumerate(payloads)]
    parts = [records[n : n + IN_SEGMENT] for n in range(0, len(records), IN_SEGMENT)]
    return qf.write_queue(tmp / "q", parts), payloads


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 8, 20, 64], ids=["length", "seq", "time", "payload"])
def test_after_it_a_damaged_first_record_causes_no_other_loss(either, which, at):
    queue, payloads = either
    break_header(qf.segment_path(queue, which))
    crafted_damage(queue, which + 1, 64, at=at)
    first = which * IN_SEGMENT
    records, events = shown(queue)
    assert records == [
        (n, payload) for n, payload in enumerate(payloads) if not first <= n <= first + IN_SEGMENT
    ]
    assert [event[0] for event in events if event[0] == "damage"] == ["damage"] * 2
    lost = [event[-2:] for event in events if event[-1] is not None]
    assert {n for low, high in lost for n in range(low, high + 1)} == set(
        range(first, first + IN_SEGMENT + 1)
    )
