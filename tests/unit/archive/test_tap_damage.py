"""Damaged or missing records of a live queue are skipped, and reported in report and ledger."""

import itertools
import shutil
import struct
import tarfile
import threading
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import archive, bus
from tapewire.book.gaps import GapLedger
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.taps import (
    DAY_NS,
    MIDNIGHT_NS,
    TYPE,
    all_archived,
    clean_queue,
    fill,
    records_of,
    run_once,
)

NAMES = {"venue": "okx", "symbol": "BTCUSDT", "stream": "trades"}
LOG = "v1/okx/BTCUSDT/2026-01-01/trades"


def craft(tmp, *segments, **options):
    return crafted.write(tmp, *segments, **options)


def numbered(numbers):
    return [qf.record(n, b"%d" % n, timestamp_ns=MIDNIGHT_NS + n) for n in numbers]


def gaps_of(tmp):
    return [
        (gap.kind, gap.symbol, gap.first, gap.last, gap.seq) for gap in GapLedger(tmp / LOG).read()
    ]


def test_a_gap_in_the_sequence_numbers_is_skipped_and_reported(tmp):
    queue = craft(tmp, numbered([0, 1, 5, 6]))
    report = run_once(queue, tmp, **NAMES)
    assert [record[0] for record in records_of(tmp / LOG)] == [0, 1, 5, 6]
    assert gaps_of(tmp) == [("record", "BTCUSDT", 2, 4, 5)]
    assert report.gaps == 1
    assert "records 2 to 4 are missing" in report.findings[0]


def test_a_damaged_record_is_skipped_and_reported(tmp):
    records = numbered(range(10))
    queue = craft(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 4))
    report = run_once(queue, tmp, **NAMES)
    assert [record[0] for record in records_of(tmp / LOG)] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert gaps_of(tmp) == [("record", "BTCUSDT", 4, 4, 5)]
    assert not report.clean


def test_a_tap_that_reads_again_does_not_report_again(tmp):
    records = numbered(range(10))
    queue = craft(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 4))
    run_once(queue, tmp, **NAMES)
    (queue / "readers" / "archive-tap.meta").unlink()
    report = run_once(queue, tmp, **NAMES)
    assert (report.records, report.gaps) == (0, 0)
    assert len(gaps_of(tmp)) == 1


def test_damage_at_the_end_is_reported_and_the_tap_waits_there(tmp):
    """The writer repairs it when it comes back; the tap then continues after it."""
    records = numbered(range(5))
    queue = craft(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 4))
    report = run_once(queue, tmp, **NAMES)
    assert "no valid record follows yet" in report.findings[0]
    assert [record[0] for record in records_of(tmp / LOG)] == [0, 1, 2, 3]
    with tw.open_publisher(queue) as writer:
        writer.append(TYPE, b"again", timestamp_ns=MIDNIGHT_NS)
    run_once(queue, tmp, **NAMES)
    assert [record[4] for record in records_of(tmp / LOG)][-1] == b"again"


def test_a_missing_segment_is_skipped_and_reported(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 1000, segment_bytes=16384)
    complete = records_of(queue)
    gone = tw.queue.status(queue).segments[2:4]
    after = tw.queue.status(queue).segments[4].first_seq
    for segment in gone:
        (queue / segment.path.rsplit("/", 1)[1]).unlink()
    report = run_once(tmp / "bus", tmp)
    kept = [r for r in complete if not gone[0].first_seq <= r[0] < after]
    assert records_of(tmp / LOG) == kept
    assert gaps_of(tmp) == [("record", "BTCUSDT", gone[0].first_seq, after - 1, after)]
    assert report.gaps == 1


def retired_to(queue, seq):
    """Remove the segments before this record, as retention would without the pinned reader."""
    segments = tw.queue.status(queue).segments
    for segment, following in itertools.pairwise(segments):
        # A preallocated segment has no record yet.
        if following.first_seq is not None and following.first_seq <= seq:
            (queue / segment.path.rsplit("/", 1)[1]).unlink()
    return tw.queue.status(queue).first_available_seq


@pytest.mark.parametrize("forgotten", [False, True])
def test_records_retired_before_the_tap_came_back_are_reported(tmp, forgotten):
    queue = clean_queue(tmp / "bus")
    fill(queue, 100, segment_bytes=16384)
    run_once(tmp / "bus", tmp)
    fill(queue, 1000, segment_bytes=16384)
    if forgotten:
        (queue / "readers" / "archive-tap.meta").unlink()
    first = retired_to(queue, 500)
    report = run_once(tmp / "bus", tmp)
    assert gaps_of(tmp) == [("record", "BTCUSDT", 100, first - 1, first)]
    assert report.gaps == 1
    numbers = [record[0] for record in records_of(tmp / LOG)]
    assert numbers == [*range(100), *range(first, 1100)]


def test_late_records_that_are_archived_and_retired_are_no_gap(tmp):
    """Three logs of later days hold lower sequence numbers: the last record is in an older log."""
    queue = clean_queue(tmp / "bus")
    for days in (9, 8, 7):
        fill(queue, 1, segment_bytes=8192, start_ns=MIDNIGHT_NS + days * DAY_NS)
    fill(queue, 500, segment_bytes=8192)
    run_once(tmp / "bus", tmp)
    fill(queue, 10, segment_bytes=8192)
    complete = records_of(queue)
    retired_to(queue, 490)
    report = run_once(tmp / "bus", tmp)
    assert report.clean
    assert report.records == 10
    assert all_archived(tmp) == complete


def test_what_was_retired_before_the_first_tap_is_a_finding(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 1000, segment_bytes=16384)
    first = retired_to(queue, 500)
    report = run_once(tmp / "bus", tmp)
    assert f"records 0 to {first - 1} were retired" in report.findings[0]
    assert gaps_of(tmp) == []


def test_a_sparse_queue_has_no_gaps(tmp):
    queue = clean_queue(tmp / "bus")
    with tw.open_publisher(queue, segment_bytes=16384, sparse=True) as writer:
        for seq in (3, 4, 90, 1000):
            writer.append(TYPE, b"x", timestamp_ns=MIDNIGHT_NS, seq=seq)
    report = run_once(tmp / "bus", tmp)
    assert [record[0] for record in records_of(tmp / LOG)] == [3, 4, 90, 1000]
    assert report.clean


def test_sequence_numbers_that_restart_are_refused(tmp):
    """As in a queue that chronicle-rs wrote with several writers."""
    with tarfile.open(Path(__file__).parents[2] / "golden/queue/restart.tar.gz") as packed:
        packed.extractall(tmp, filter="data")
    with pytest.raises(tw.SequenceNotRising, match="restart: seq=0 after 199"):
        run_once(tmp / "restart", tmp, **NAMES)
    assert [record[0] for record in all_archived(tmp)] == list(range(200))


def test_a_queue_created_again_is_not_taken_for_the_old_one(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 100)
    run_once(tmp / "bus", tmp)
    before = records_of(tmp / LOG)
    shutil.rmtree(queue)
    fill(queue, 200, step_ns=7)
    with pytest.raises(tw.SequenceNotRising, match="another record under a sequence number"):
        run_once(queue, tmp)
    assert records_of(tmp / LOG) == before


def test_a_queue_created_again_on_another_day_is_reported(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 100)
    run_once(tmp / "bus", tmp)
    shutil.rmtree(queue)
    fill(queue, 10, start_ns=MIDNIGHT_NS + 86_400 * 10**9)
    report = run_once(queue, tmp)
    assert "sequence numbers go back from 99 to 0" in report.findings[0]
    assert report.records == 10


def test_a_queue_created_again_is_reported_once(tmp):
    """By the run that archives its first records, not by the next ones."""
    queue = clean_queue(tmp / "bus")
    fill(queue, 100)
    run_once(tmp / "bus", tmp)
    shutil.rmtree(queue)
    next_day_ns = MIDNIGHT_NS + 86_400 * 10**9
    fill(queue, 10, start_ns=next_day_ns)
    assert run_once(queue, tmp).findings_count == 1
    fill(queue, 10, start_ns=next_day_ns)
    assert run_once(queue, tmp).findings == []
    assert len(all_archived(tmp)) == 120


def test_a_running_tap_reports_a_queue_created_again_once(tmp, eventually, monkeypatch):
    monkeypatch.setattr("tapewire.archive.tapping.SCAN_SECONDS", 0.0)
    queue = clean_queue(tmp / "bus")
    fill(queue, 100)
    tap = archive.tap(tmp / "bus", tmp)
    thread = threading.Thread(target=tap.run)
    thread.start()
    try:
        eventually(lambda: tap.report.records == 100)
        shutil.rmtree(queue)
        fill(queue, 10, start_ns=MIDNIGHT_NS + 86_400 * 10**9)
        eventually(lambda: tap.report.records == 110)
    finally:
        tap.stop()
        thread.join()
    assert tap.report.findings == ["okx/BTCUSDT/trades: the live queue was created again"]


def test_a_queue_created_in_the_place_of_one_that_failed_is_followed(tmp, eventually, monkeypatch):
    monkeypatch.setattr("tapewire.archive.tapping.SCAN_SECONDS", 0.0)
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    control = queue / "control.meta"
    control.write_bytes(b"damaged".ljust(512, b"!"))
    tap = archive.tap(tmp / "bus", tmp)
    thread = threading.Thread(target=tap.run)
    thread.start()
    try:
        eventually(lambda: tap.report.findings_count == 1)
        assert "no longer archived" in tap.report.findings[0]
        queue.rename(tmp / "set_aside")
        fill(queue, 20)
        eventually(lambda: tap.report.records == 20)
    finally:
        tap.stop()
        thread.join()
    assert tap.report.findings_count == 1


@pytest.mark.parametrize("what", ["payload", "time", "type", "flags"])
def test_sequence_numbers_assigned_again_after_a_power_cut_are_refused(tmp, what):
    """Each field is compared: the archive must not hold records that the queue no longer has."""
    changed = {"timestamp_ns": MIDNIGHT_NS + 2, "type_id": 1, "flags": 0}
    changed |= {"time": {"timestamp_ns": 5}, "type": {"type_id": 9}, "flags": {"flags": 0x300}}.get(
        what, {}
    )
    payload = b"other" if what == "payload" else b"2"
    if what == "time":
        changed["timestamp_ns"] = MIDNIGHT_NS + 3
    (tmp / "one").mkdir()
    queue = craft(tmp / "one", numbered(range(3)))
    run_once(queue, tmp, **NAMES)
    (tmp / "two").mkdir()
    queue = craft(tmp / "two", [*numbered(range(2)), qf.record(2, payload, **changed)])
    with pytest.raises(tw.SequenceNotRising):
        run_once(queue, tmp, **NAMES)


def test_a_time_before_1970_has_no_day_and_is_reported(tmp):
    records = numbered(range(4))
    records[1] = qf.record(1, b"?", timestamp_ns=2**63 + 5)
    queue = craft(tmp, records)
    report = run_once(queue, tmp, **NAMES)
    assert [record[0] for record in records_of(tmp / LOG)] == [0, 2, 3]
    assert gaps_of(tmp) == [("record", "BTCUSDT", 1, 1, 2)]
    assert "1970" in report.findings[0]


def test_a_damaged_live_queue_never_ends_the_tap_without_a_report(tmp):
    """Whatever byte is corrupt: a typed error or a finding, and valid records are archived."""
    queue = clean_queue(tmp / "bus")
    fill(queue, 60, segment_bytes=8192)
    complete = records_of(queue)
    segment = qf.segment_path(queue, 0)
    original = segment.read_bytes()
    for at in range(0, 4096, 61):
        segment.write_bytes(original[:at] + bytes([original[at] ^ 0x55]) + original[at + 1 :])
        (queue / "readers" / "archive-tap.meta").unlink(missing_ok=True)
        root = tmp / f"at-{at}"
        try:
            report = run_once(queue, root)
        except tw.TapewireError:
            continue
        kept = all_archived(root) if report.records else []
        assert set(kept) <= set(complete)
        assert report.clean == (kept == complete), at


def test_verify_finds_damage_in_the_archive(tmp):
    fill(clean_queue(tmp / "bus"), 100)
    run_once(tmp / "bus", tmp / "archive")
    assert archive.verify(tmp / "archive").intact
    segment = tmp / "archive" / LOG / "000000000.q"
    data = bytearray(segment.read_bytes())
    struct.pack_into("<B", data, 64 + 64 + 1, data[64 + 64 + 1] ^ 1)
    segment.write_bytes(data)
    verdict = archive.verify(tmp / "archive")
    assert not verdict.intact
    assert verdict.logs[LOG].damaged_places == 1


def test_verify_finds_a_record_of_another_day(tmp):
    fill(clean_queue(tmp / "bus"), 10)
    run_once(tmp / "bus", tmp / "archive")
    day = (tmp / "archive" / LOG).parent
    day.rename(day.with_name("2026-01-02"))
    verdict = archive.verify(tmp / "archive")
    assert list(verdict.misplaced) == [LOG.replace("01-01", "01-02")]
    assert not verdict.intact


def test_verify_reports_a_log_that_cannot_be_read(tmp):
    fill(clean_queue(tmp / "bus"), 10)
    run_once(tmp / "bus", tmp / "archive")
    (tmp / "archive" / LOG / "control.meta").write_bytes(b"x")
    verdict = archive.verify(tmp / "archive")
    assert list(verdict.unreadable) == [LOG]
    (listed,) = archive.ls(tmp / "archive")
    assert listed.problem


@pytest.mark.parametrize("raw", [False, True])
def test_a_log_without_its_control_file_is_reported(tmp, raw):
    fill(bus.Layout(tmp / "bus").streams.raw("okx") if raw else clean_queue(tmp / "bus"), 10)
    run_once(tmp / "bus", tmp / "archive")
    (log,) = archive.ls(tmp / "archive")
    (tmp / "archive" / log.log / "control.meta").unlink()
    verdict = archive.verify(tmp / "archive")
    assert list(verdict.unreadable) == [log.log]
    assert not verdict.intact
    (listed,) = archive.ls(tmp / "archive")
    assert listed.problem


def test_verify_reports_a_damaged_ledger(tmp):
    run_once(craft(tmp, numbered([0, 1, 5])), tmp, **NAMES)
    ledger = tmp / LOG / "gaps.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"first":2', b'"first":3'))
    verdict = archive.verify(tmp)
    assert (verdict.intact, verdict.gaps) == (True, 0)
    assert verdict.problems == [f"{LOG}: damaged lines in gaps.jsonl: 1"]


@pytest.mark.parametrize("look", [archive.ls, archive.verify])
def test_a_directory_that_is_not_an_archive_is_refused(tmp, look):
    with pytest.raises(tw.NotALog):
        look(tmp)
    with pytest.raises(FileNotFoundError):
        look(tmp / "nothing")
