"""Refined logs equal a plain split in one pass, to the byte, without duplicates."""

import importlib
import itertools
import json
import shutil

import pytest

from tapewire import bus, replay
from tapewire.archive.job_marks import JobMarks
from tapewire.archive.transaction import Archive
from tapewire.book.gaps import Gap, GapLedger
from tapewire.errors import InvalidOption, NotALog
from tapewire.protocol.instruments import Instruments
from tapewire.queue.status import status
from tapewire.refine import RefineOptions, refined_table
from tapewire.refine.ledger import RefineLedger
from tapewire.replay import snapshots
from tapewire.spark import jobs
from tests.support.raw_tapes import (
    INSTRUMENTS,
    SECOND,
    VENUE,
    archive_raw,
    clean_logs,
    plain_split,
    raw_rows,
    table_logs,
    write_raw,
)
from tests.support.staged import Job

ROWS = raw_rows(4_000)
refine_job = importlib.import_module("tapewire.spark.jobs.refine")  # the function has the same name


def killed(*_, **__):
    raise KeyboardInterrupt("as if killed here")


def test_an_archive_of_raw_days_equals_a_plain_split(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    want = plain_split(ROWS)
    assert clean_logs(tmp_path / "clean") == want
    assert len(want) == 3 * 3 * 2  # symbols, streams, days
    assert summary.rows == sum(len(log) for log in want.values())
    assert (summary.done, summary.failed) == (len(want), 0)
    assert summary.counts["of_other_types"] == sum(row[1] in (0x10FF, 0x7777) for row in ROWS)
    assert set(Instruments.load(tmp_path / "clean")) == set(INSTRUMENTS)
    log = bus.ArchiveLayout(tmp_path / "clean").log(VENUE, "000001", "2024-01-01", "book")
    assert status(log).sparse


def test_books_have_valid_snapshots_at_the_interval_asked_for(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", snapshot_seconds=20)

    log = bus.ArchiveLayout(tmp_path / "clean").log(VENUE, "BTC-USDT", "2024-01-01", "book")
    (market,) = snapshots.markets(log)
    times = [snapshots.info(file.path).ingest_end_ns for file in snapshots.files(log, *market)]
    assert len(times) == 6  # of 100 s: at the first event, every 20 s, and at the end
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(20 * SECOND <= step < 22 * SECOND for step in steps[:-1])
    cold = replay.book_at(log, "BTC-USDT", times[3] + SECOND, snapshots=False)
    warm = replay.book_at(log, "BTC-USDT", times[3] + SECOND)
    assert warm.trusted
    assert warm.hash() == cold.hash()
    assert status(log).readers == ()


def test_another_run_does_nothing(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    first = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    before = clean_logs(tmp_path / "clean")
    again = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert (again.done, again.skipped, again.rows) == (0, first.done, 0)
    assert again.counts == first.counts
    assert clean_logs(tmp_path / "clean") == before


def test_new_records_of_a_raw_queue_are_added(spark, tmp_path):
    raw = bus.Layout(tmp_path / "bus").streams.raw(VENUE)
    Instruments(INSTRUMENTS).save(tmp_path)
    rows = raw_rows(3_000, late_every=50)
    write_raw(raw, rows[:1_900])
    options = {"late": "separate", "lateness": 1.0}
    jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", **options)
    write_raw(raw, rows)
    summary = jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", **options)

    want = plain_split(rows, late="separate")
    assert clean_logs(tmp_path / "clean") == want
    assert summary.rows < sum(len(log) for log in want.values()) / 2
    assert summary.counts["late"] == sum(len(log) for n, log in want.items() if "_late" in n)


@pytest.mark.parametrize("late", ["keep", "drop", "separate"])
def test_late_records_go_where_the_policy_sends_them(spark, tmp_path, late):
    rows = raw_rows(2_000, late_every=40)
    write_raw(tmp_path / "raw", rows)
    Instruments(INSTRUMENTS).save(tmp_path)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late=late)

    assert clean_logs(tmp_path / "clean") == plain_split(rows, late=late)
    kept, dropped = plain_split(rows), plain_split(rows, late="drop")
    count = sum(map(len, kept.values())) - sum(map(len, dropped.values()))
    assert count > 20
    assert summary.counts["late_dropped" if late == "drop" else "late"] == count


def test_another_policy_rebuilds_the_logs(spark, tmp_path):
    rows = raw_rows(1_000, late_every=40)
    write_raw(tmp_path / "raw", rows)
    Instruments(INSTRUMENTS).save(tmp_path)
    for late in ("separate", "drop"):
        jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late=late)
        assert clean_logs(tmp_path / "clean") == plain_split(rows, late=late)


def test_a_change_of_policy_that_is_killed_before_it_publishes_is_carried_out_by_the_next_run(
    spark, tmp_path, monkeypatch
):
    rows = raw_rows(1_000, late_every=40)
    write_raw(tmp_path / "raw", rows)
    Instruments(INSTRUMENTS).save(tmp_path)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late="separate")
    with monkeypatch.context() as patched:
        patched.setattr(refine_job, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late="drop")
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late="drop")
    assert clean_logs(tmp_path / "clean") == plain_split(rows, late="drop")


def test_raw_logs_that_grew_after_a_kill_lose_no_record(spark, tmp_path, monkeypatch):
    """The second log has what the first one lacks, before the end of the clean logs by then."""
    rows = raw_rows(1_000)
    Instruments(INSTRUMENTS).save(tmp_path)
    holed = [None if 300 <= i < 400 else row for i, row in enumerate(rows)]
    write_raw(tmp_path / "a" / "streams" / "raw" / VENUE / "queue", holed)
    other = tmp_path / "b" / "streams" / "raw" / VENUE / "queue"
    write_raw(other, rows[:200])
    with monkeypatch.context() as patched:
        patched.setattr(refine_job._Run, "_complete", killed)
        with pytest.raises(KeyboardInterrupt):
            jobs.refine(spark, str(tmp_path / "*" / "streams"), tmp_path / "clean")
    write_raw(other, rows[:600])
    jobs.refine(spark, str(tmp_path / "*" / "streams"), tmp_path / "clean")
    assert clean_logs(tmp_path / "clean") == plain_split(rows)


def save_a_part(save):
    """A sink that is killed when it has published the logs of one symbol."""

    def save_and_die(frame, *rest):
        save(frame.where("symbol = '000001'"), *rest)
        killed()

    return save_and_die


# What is replaced by a function that kills the run at the call of it. That of "before it saves" is
# in a test of its own.
KILLS = {
    "before it removes marks": (JobMarks, "forget", killed),
    "while it saves": (refine_job, "_save", save_a_part(refine_job._save)),
    "before it removes stale logs": (refine_job._Run, "_remove_stale", killed),
    "before it completes": (RefineLedger, "complete", killed),
    "before it finishes": (refine_job, "run_parts", killed),
}


@pytest.mark.parametrize(
    ("late", "kill"),
    [
        *(("drop", kill) for kill in KILLS),
        ("separate", "while it saves"),
        ("separate", "before it completes"),
    ],
)
def test_a_run_that_is_killed_is_carried_out_by_the_next_one(
    spark, tmp_path, monkeypatch, late, kill
):
    """The raw log has grown since. Late records go elsewhere, or where they went before."""
    raw = bus.Layout(tmp_path / "bus").streams.raw(VENUE)
    Instruments(INSTRUMENTS).save(tmp_path)
    rows = raw_rows(600, late_every=40)
    rows[300:310] = [None] * 10
    write_raw(raw, rows[:200])
    jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", late="separate")
    write_raw(raw, rows[:400])
    with monkeypatch.context() as patched:
        patched.setattr(*KILLS[kill])
        with pytest.raises(KeyboardInterrupt):
            jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", late=late)
    write_raw(raw, rows)
    last = jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", late=late)

    want = plain_split(rows, late=late)
    assert clean_logs(tmp_path / "clean") == want
    assert (last.done + last.skipped, last.failed) == (len(want), 0)
    layout = bus.ArchiveLayout(tmp_path / "clean")
    for name in want:
        lost = [g for g in GapLedger(layout.log(*name.split("/"))).read() if g.kind == "record"]
        assert [(gap.first, gap.last) for gap in lost] == (
            [(300, 309)] if "2024-01-02" in name else []
        )
    again = jobs.refine(spark, tmp_path / "bus", tmp_path / "clean", late=late)
    assert (again.done, again.skipped, again.rows) == (0, len(want), 0)


def test_a_replacement_that_is_killed_is_carried_out_though_the_raw_log_has_grown(
    spark, tmp_path, monkeypatch
):
    """The new raw log has grown past the end of the old one, as if it had only been continued."""
    Instruments(INSTRUMENTS).save(tmp_path)
    old, new = raw_rows(500, seed=1), raw_rows(900, seed=2)
    write_raw(tmp_path / "raw", old)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    shutil.rmtree(tmp_path / "raw")
    write_raw(tmp_path / "raw", new[:300])
    with monkeypatch.context() as patched:
        patched.setattr(refine_job, "_save", save_a_part(refine_job._save))
        with pytest.raises(KeyboardInterrupt):
            jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    write_raw(tmp_path / "raw", new)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    assert clean_logs(tmp_path / "clean") == plain_split(new)


def test_what_a_killed_run_had_decided_to_publish_does_not_outlive_a_change_of_policy(
    spark, tmp_path, monkeypatch
):
    """The next write to the archive publishes it: that must not be after stale logs are listed."""
    rows = raw_rows(600, late_every=40)
    write_raw(tmp_path / "raw", rows)
    Instruments(INSTRUMENTS).save(tmp_path)

    def decide_and_die(frame, target, replace):
        table = refined_table(tmp_path / "raw", RefineOptions(late="separate"))
        staged = Job(target).task(*table.drop_columns(["late"]).to_batches())
        with monkeypatch.context() as patched:
            patched.setattr(Archive, "_publish", killed)
            staged.commit()

    with monkeypatch.context() as patched:
        patched.setattr(refine_job, "_save", decide_and_die)
        with pytest.raises(KeyboardInterrupt):
            jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late="separate")
    assert clean_logs(tmp_path / "clean") == {}
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean", late="keep")
    assert clean_logs(tmp_path / "clean") == plain_split(rows)


def test_a_snapshot_interval_is_checked_before_anything_is_read(tmp_path):
    with pytest.raises(InvalidOption, match="snapshot_seconds=0"):
        jobs.refine(None, tmp_path / "missing", tmp_path / "clean", snapshot_seconds=0)


def test_records_of_another_day_are_left_out_and_reported(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    layout = bus.ArchiveLayout(tmp_path / "raw")
    write_raw(layout.raw(VENUE, "2024-01-01"), [ROWS[3_990]], first_seq=9_000)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert clean_logs(tmp_path / "clean") == plain_split(ROWS)
    (finding,) = [finding for finding in summary.findings if "another day" in finding.what]
    assert (finding.kind, finding.where) == ("damage", str(layout.raw(VENUE, "2024-01-01")))


def test_the_table_of_one_process_equals_the_archive(spark, tmp_path):
    rows = raw_rows(1_000, late_every=40, stranger_every=50)
    Instruments(INSTRUMENTS).save(tmp_path)
    write_raw(tmp_path / "a" / "streams" / "raw" / VENUE / "queue", rows)
    write_raw(tmp_path / "b" / "streams" / "raw" / VENUE / "queue", raw_rows(700, seed=2))
    source = str(tmp_path / "*" / "streams")
    jobs.refine(spark, source, tmp_path / "clean", late="separate", lateness=2)

    table = refined_table(source, RefineOptions(late="separate", lateness=2))
    assert table_logs(table) == clean_logs(tmp_path / "clean")


def test_a_gap_of_a_raw_queue_is_recorded_once_however_often_it_is_refined(spark, tmp_path):
    raw = bus.Layout(tmp_path / "bus").streams.raw(VENUE)
    Instruments(INSTRUMENTS).save(tmp_path)
    rows = raw_rows(400)
    for end in (200, 400):
        write_raw(raw, rows[:end])
        gap = Gap("venue", VENUE, "BTC-USDT", "trades", 5, 6, seq=30, timestamp_ns=rows[30][0])
        GapLedger(raw).add(gap)
        jobs.refine(spark, tmp_path / "bus", tmp_path / "clean")
    (entry,) = (tmp_path / "clean" / "_tapewire" / "done" / "refine" / "units").glob("*.json")
    assert len(json.loads(entry.read_text())["result"]["done"]["gaps"]) == 1


def test_a_record_of_two_raw_logs_is_written_once(spark, tmp_path):
    """By its sequence number; in a log with other sequence numbers, by the number of the venue."""
    rows = raw_rows(1_500)
    Instruments(INSTRUMENTS).save(tmp_path)
    root = tmp_path / "bus" / "streams" / "raw"
    write_raw(root / VENUE / "queue", rows)
    write_raw(tmp_path / "more" / "streams" / "raw" / VENUE / "queue", rows[:1_000])
    numbered = [r for r in rows if r[1] in (0x1000, 0x1004)]  # with numbers of the venue
    write_raw(tmp_path / "zz" / "streams" / "raw" / VENUE / "queue", numbered, first_seq=10_000)
    summary = jobs.refine(spark, str(tmp_path / "*" / "streams"), tmp_path / "clean")

    assert clean_logs(tmp_path / "clean") == plain_split(rows)
    copies = sum(map(len, plain_split(rows[:1_000]).values())) + len(numbered)
    assert summary.counts["duplicates"] == copies
    assert summary.counts["conflicts"] == 0


def test_conflicting_records_of_two_raw_logs_are_reported(spark, tmp_path):
    one, other = raw_rows(600, seed=1), raw_rows(600, seed=2)
    Instruments(INSTRUMENTS).save(tmp_path)
    write_raw(tmp_path / "a" / "streams" / "raw" / VENUE / "queue", one)
    write_raw(tmp_path / "b" / "streams" / "raw" / VENUE / "queue", other)
    summary = jobs.refine(spark, str(tmp_path / "*" / "streams"), tmp_path / "clean")

    assert summary.counts["conflicts"] > 0
    assert summary.exit_code == 3


def test_missing_raw_records_are_in_the_ledgers_of_that_day(spark, tmp_path):
    rows = list(ROWS)
    rows[700:710] = [None] * 10
    archive_raw(tmp_path / "raw", rows)
    known = Gap("venue", VENUE, "BTC-USDT", "book", 5, 6, seq=30, timestamp_ns=rows[30][0])
    GapLedger(bus.ArchiveLayout(tmp_path / "raw").raw(VENUE, "2024-01-01")).add(known)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    layout = bus.ArchiveLayout(tmp_path / "clean")
    for symbol in ("BTC-USDT", "000001"):
        for stream in ("book", "trades", "quotes"):
            ledger = GapLedger(layout.log(VENUE, symbol, "2024-01-01", stream)).read()
            lost = [gap for gap in ledger if gap.kind == "record"]
            assert [(gap.first, gap.last, gap.seq) for gap in lost] == [(700, 709, 710)]
            assert (known in ledger) == (symbol == "BTC-USDT" and stream == "book")
            assert not GapLedger(layout.log(VENUE, symbol, "2024-01-02", stream)).read() or (
                stream == "book"
            )
    assert clean_logs(tmp_path / "clean") == plain_split(rows)
    assert summary.exit_code == 1
    assert summary.counts["gaps"] >= 9


def test_a_late_record_of_the_day_before_is_not_a_gap(spark, tmp_path):
    rows = raw_rows(2_000, late_every=7)  # some of them are put into the log of the day before
    archive_raw(tmp_path / "raw", rows)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert clean_logs(tmp_path / "clean") == plain_split(rows)
    layout = bus.ArchiveLayout(tmp_path / "clean")
    assert GapLedger(layout.log(VENUE, "BTC-USDT", "2024-01-01", "trades")).read() == []
    assert summary.failed == 0


def test_records_of_unknown_instruments_are_reported(spark, tmp_path):
    rows = raw_rows(600, stranger_every=10)
    archive_raw(tmp_path / "raw", rows)
    summary = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert clean_logs(tmp_path / "clean") == plain_split(rows)
    assert summary.counts["of_no_known_instrument"] == 60 - 1  # the first is a snapshot
    assert any("market_id=" in finding.what for finding in summary.findings)
    assert any("symbol_hash=" in finding.what for finding in summary.findings)


def test_damage_fails_its_day_alone_or_is_skipped_and_reported(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    raw = bus.ArchiveLayout(tmp_path / "raw").raw(VENUE, "2024-01-01")
    segment = sorted(raw.glob("*.q"))[0]
    data = bytearray(segment.read_bytes())
    at = data.index(b'{"wire":"bytes"}', len(data) // 2)
    data[at] ^= 0xFF
    segment.write_bytes(data)

    failed = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    assert (failed.failed, failed.exit_code) == (1, 3)
    (damage,) = [finding for finding in failed.findings if finding.kind == "failed"]
    assert str(raw) in damage.where
    want = plain_split(ROWS)
    assert clean_logs(tmp_path / "clean") == {k: v for k, v in want.items() if "01-02" in k}

    skipped = jobs.refine(spark, tmp_path / "raw", tmp_path / "skipped", on_damage="skip")
    assert clean_logs(tmp_path / "skipped") == want  # the damaged record goes to no clean log
    assert (skipped.failed, skipped.exit_code) == (0, 3)


def test_a_tree_without_raw_logs_is_refused(spark, tmp_path):
    write_raw(bus.ArchiveLayout(tmp_path).log("v", "s", "2024-01-01", "book"), ROWS[:10])
    with pytest.raises(NotALog, match="no raw log"):
        jobs.refine(spark, tmp_path, tmp_path / "clean")


def test_a_removed_clean_log_is_written_again_and_no_other_is_touched(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    before = clean_logs(tmp_path / "clean")
    lost, kept = sorted(before)[:2]
    inode = (tmp_path / "clean/v1" / kept / "control.meta").stat().st_ino
    shutil.rmtree(tmp_path / "clean/v1" / lost)
    again = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert again.failed == 0
    assert again.rows == len(before[lost])
    assert clean_logs(tmp_path / "clean") == before
    assert (tmp_path / "clean/v1" / kept / "control.meta").stat().st_ino == inode
    assert jobs.refine(spark, tmp_path / "raw", tmp_path / "clean").done == 0


def test_damaged_marks_count_as_none(spark, tmp_path):
    archive_raw(tmp_path / "raw", ROWS)
    jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")
    before = clean_logs(tmp_path / "clean")
    for mark in (tmp_path / "clean/_tapewire/done").rglob("*.json"):
        mark.write_text("{")
    again = jobs.refine(spark, tmp_path / "raw", tmp_path / "clean")

    assert (again.failed, again.rows) == (0, 0)
    assert clean_logs(tmp_path / "clean") == before


def test_a_removed_clean_log_whose_raw_records_are_missing_is_reported_once(spark, tmp_path):
    raw = bus.Layout(tmp_path / "bus").streams.raw(VENUE)
    Instruments(INSTRUMENTS).save(tmp_path)
    rows = raw_rows(1_000)
    write_raw(raw, rows[:600])
    jobs.refine(spark, tmp_path / "bus", tmp_path / "clean")
    lost = sorted(clean_logs(tmp_path / "clean"))[0]
    shutil.rmtree(tmp_path / "clean/v1" / lost)
    shutil.rmtree(raw)
    write_raw(raw, rows[300:], first_seq=300)
    summary = jobs.refine(spark, tmp_path / "bus", tmp_path / "clean")
    again = jobs.refine(spark, tmp_path / "bus", tmp_path / "clean")

    assert summary.failed == 0
    assert [finding.where for finding in summary.findings if "removed" in finding.what] == [lost]
    assert not [finding for finding in again.findings if "removed" in finding.what]
