"""Refining in one process equals a plain split in one pass, record by record."""

import pytest

from tapewire import bus
from tapewire.errors import CorruptSource, NotALog
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.refine import RefineOptions, refined_table
from tapewire.refine import table as refining
from tapewire.refine.judge import JUDGED_SCHEMA
from tests.support.raw_tapes import (
    INSTRUMENTS,
    STRANGER,
    VENUE,
    archive_raw,
    plain_split,
    raw_rows,
    table_logs,
    write_raw,
)


@pytest.fixture
def root(tmp_path):
    Instruments(INSTRUMENTS).save(tmp_path)
    return tmp_path


def raw(root, bus_name, venue=VENUE):
    return root / bus_name / "streams" / "raw" / venue / "queue"


def both(root):
    return str(root / "*" / "streams")


@pytest.mark.parametrize("late", ["keep", "drop", "separate"])
def test_late_records_go_where_the_policy_sends_them(root, late):
    rows = raw_rows(2_000, late_every=40)
    write_raw(root / "raw", rows)
    table = refined_table(root / "raw", RefineOptions(late=late))
    assert table_logs(table) == plain_split(rows, late=late)
    assert (sum(table["late"].to_pylist()) > 20) == (late != "drop")


def test_lateness_decides_what_is_late(root):
    rows = raw_rows(1_000, late_every=40)  # 5 s late
    write_raw(root / "raw", rows)
    table = refined_table(root / "raw", RefineOptions(late="drop", lateness=6))
    assert table_logs(table) == plain_split(rows)


def test_rows_are_ordered_by_clean_log_and_sequence_number(root):
    rows = raw_rows(1_000, late_every=40)
    archive_raw(root / "archive", rows)
    table = refined_table(root / "archive", RefineOptions(late="separate"))
    logs = table_logs(table)
    assert list(logs) == sorted(logs, key=lambda name: name.split("/"))
    for log in logs.values():
        assert log == sorted(log)
    assert table.schema.names == [n for n in JUDGED_SCHEMA.names if n != "verdict"]


def test_an_archive_of_raw_days_is_split_by_day(root):
    rows = raw_rows(2_000)
    archive_raw(root / "archive", rows)
    want = plain_split(rows)
    assert len({name.split("/")[2] for name in want}) == 2
    assert table_logs(refined_table(root / "archive")) == want


def test_records_of_another_day_are_left_out(root):
    rows = raw_rows(1_000)
    archive_raw(root / "archive", rows)
    layout = bus.ArchiveLayout(root / "archive")
    other = rows[990]  # of the second day; appended to the log of the first
    write_raw(layout.raw(VENUE, "2024-01-01"), [other], first_seq=2_000)
    assert table_logs(refined_table(root / "archive")) == plain_split(rows)


def test_duplicates_in_two_raw_logs_are_kept_once(root):
    rows = raw_rows(1_500)
    write_raw(raw(root, "a"), rows)
    write_raw(raw(root, "b"), rows[:1_000])
    numbered = [row for row in rows if row[1] in (0x1000, 0x1004)]  # with the venue's numbers
    write_raw(raw(root, "c"), numbered, first_seq=10_000)
    assert table_logs(refined_table(both(root))) == plain_split(rows)


def test_batches_of_any_size_give_the_same_rows(root, monkeypatch):
    rows = raw_rows(300, late_every=40)
    write_raw(raw(root, "a"), rows)
    write_raw(raw(root, "b"), rows[:200])
    monkeypatch.setattr(refining, "_BATCH_ROWS", 7)
    assert table_logs(refined_table(both(root))) == plain_split(rows)


def test_raw_logs_of_two_venues_may_hold_the_same_instruments(root):
    rows = raw_rows(600)
    write_raw(raw(root, "a"), rows)
    write_raw(raw(root, "a", "mirror"), rows)
    assert table_logs(refined_table(both(root))) == plain_split(rows)


def test_of_records_in_conflict_that_of_the_first_log_is_kept(root):
    one, other = raw_rows(600, seed=1), raw_rows(900, seed=2)
    write_raw(raw(root, "a"), one)
    write_raw(raw(root, "b"), other)
    want = {}
    for name, log in plain_split(other).items():
        want[name] = {record[0]: record for record in log}
        want[name] |= {record[0]: record for record in plain_split(one)[name]}
    logs = {
        name: {r[0]: r for r in log} for name, log in table_logs(refined_table(both(root))).items()
    }
    assert logs == want


def test_records_of_unknown_instruments_are_left_out(root):
    rows = raw_rows(600, stranger_every=10)
    write_raw(root / "raw", rows)
    assert table_logs(refined_table(root / "raw")) == plain_split(rows)


def test_given_instruments_replace_those_beside_the_logs(root):
    rows = raw_rows(300, stranger_every=10)
    write_raw(root / "raw", rows)
    known = Instrument.of(STRANGER.venue, STRANGER.symbol, 2, 3)
    logs = table_logs(refined_table(root / "raw", instruments=Instruments([known])))
    assert {name.split("/")[1] for name in logs} == {"X"}


def test_without_instruments_the_table_is_empty(tmp_path):
    write_raw(tmp_path / "raw", raw_rows(50))
    table = refined_table(tmp_path / "raw")
    assert table.num_rows == 0
    assert table.schema.names == [n for n in JUDGED_SCHEMA.names if n != "verdict"]


def test_an_empty_raw_log_gives_an_empty_table(root):
    write_raw(root / "raw", [])
    assert refined_table(root / "raw").num_rows == 0


def test_damage_is_raised_or_skipped(root):
    rows = raw_rows(2_000)
    write_raw(root / "raw", rows)
    segment = sorted((root / "raw").glob("*.q"))[0]
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"wire":"bytes"}', len(data) // 2)] ^= 0xFF
    segment.write_bytes(data)

    with pytest.raises(CorruptSource) as caught:
        refined_table(root / "raw")
    assert caught.value.path == str(segment)
    table = refined_table(root / "raw", RefineOptions(on_damage="skip"))
    assert table_logs(table) == plain_split(rows)  # the damaged record goes to no clean log


def test_logs_of_one_symbol_are_refused(tmp_path):
    write_raw(bus.ArchiveLayout(tmp_path).log("v", "s", "2024-01-01", "book"), raw_rows(10))
    with pytest.raises(NotALog, match="no raw log"):
        refined_table(tmp_path)
