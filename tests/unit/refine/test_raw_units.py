"""Which raw logs are refined together, what is missing in them, and what of them is new."""

import copy
import random
import shutil
from pathlib import Path

import pytest

import tapewire as tw
from tapewire.errors import InvalidOption
from tapewire.refine.ledger import DoneUnit, PendingUnit
from tapewire.refine.raw_units import RawUnit, missing_of, raw_logs, units_of
from tapewire.scan import LogRef, ReadOptions
from tapewire.spark.jobs import refine
from tests.support.raw_tapes import archive_raw, raw_rows, write_raw


def test_sequence_numbers_of_an_adjacent_day_are_not_missing(tmp_path):
    rows = raw_rows(2_000, late_every=7)
    rows[300:310] = [None] * 10
    archive_raw(tmp_path, rows)
    one, two = units_of(raw_logs(tmp_path))
    assert [log.date for log in one.neighbours] == ["2024-01-02"]

    assert list(missing_of([300, 309, 310, 1], one.neighbours)) == [[300, 309, 310, 1]]
    late = next(i for i in range(1_001, 2_000) if rows[i][0] // 10**9 < 1_704_153_600)
    assert list(missing_of([late, late, late + 1, 1], two.neighbours)) == []
    assert next(iter(missing_of([305, late, late + 1, 1], two.neighbours)))[:2] == [305, 309]


def test_a_damaged_adjacent_day_is_no_error(tmp_path):
    rows = raw_rows(2_000, late_every=7)
    archive_raw(tmp_path, rows)
    one, _ = units_of(raw_logs(tmp_path))
    for segment in Path(one.neighbours[0].path).glob("*.q"):
        data = bytearray(segment.read_bytes())
        data[4096:8192] = random.Random(1).randbytes(4096)
        segment.write_bytes(data)
    with tw.open_log(one.neighbours[0].path) as log, pytest.raises(tw.TapewireError):
        list(log)
    assert list(missing_of([1_500, 1_999, 2_000, 1], one.neighbours))[-1][1] == 1_999


def test_infinite_lateness_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="lateness=inf"):
        refine(None, tmp_path, tmp_path, lateness=float("inf"))


KEEP, DROP = {"late": "keep"}, {"late": "drop"}
READ = ReadOptions()


def planned(*paths):
    logs = [LogRef(f"raw/{path.name}", str(path), "okx") for path in paths]
    unit = RawUnit("okx", None, sorted(logs))
    unit.plan(READ, 1)
    return unit


def done(unit, **changes):
    return DoneUnit(
        **{"inputs": copy.deepcopy(unit.inputs), "options": KEEP, "clocks": [77], **changes}
    )


def ranges(unit):
    return [[(part.seq_from, part.seq_to) for part in parts] for parts in unit.slices]


@pytest.fixture
def raw(tmp_path):
    write_raw(tmp_path / "raw", raw_rows(200))
    return tmp_path / "raw"


def retire(path, keep_from):
    """Write the log again without its first records, as after retention."""
    shutil.rmtree(path)
    write_raw(path, raw_rows(200)[keep_from:], first_seq=keep_from)


def test_a_log_that_has_grown_is_continued_with_its_clock(raw):
    before = done(planned(raw))
    write_raw(raw, raw_rows(300))
    unit = planned(raw)
    unit.continue_after(before, KEEP, READ, 1)
    assert (unit.replace, unit.again, unit.clocks) == (False, False, [77])
    assert ranges(unit) == [[(200, 300)]]
    assert unit.inputs == [{"path": str(raw), "first_seq": 0, "next_seq": 300}]


def test_a_log_without_new_records_has_nothing_to_read(raw):
    unit = planned(raw)
    unit.continue_after(done(planned(raw)), KEEP, READ, 1)
    assert (unit.replace, ranges(unit)) == (False, [[]])


def test_a_log_whose_refined_records_were_retired_is_continued(raw):
    before = done(planned(raw))
    retire(raw, 150)
    write_raw(raw, [*[None] * 200, *raw_rows(260)[200:]])
    unit = planned(raw)
    assert unit.has_lost_records(before)
    unit.continue_after(before, KEEP, READ, 1)
    assert (unit.replace, ranges(unit)) == (False, [[(200, 260)]])
    assert unit.inputs[0]["first_seq"] == 0, "what the clean logs begin with"


def test_other_options_replace_everything(raw):
    unit = planned(raw)
    unit.continue_after(done(planned(raw)), DROP, READ, 1)
    assert (unit.replace, ranges(unit)) == (True, [[(0, 200)]])


def test_a_log_that_has_become_shorter_replaces_everything(raw):
    before = done(planned(raw))
    shutil.rmtree(raw)
    write_raw(raw, raw_rows(100))
    unit = planned(raw)
    unit.continue_after(before, KEEP, READ, 1)
    assert (unit.replace, ranges(unit)) == (True, [[(0, 100)]])


def test_another_log_of_the_unit_replaces_everything(raw, tmp_path):
    before = done(planned(raw))
    write_raw(tmp_path / "more", raw_rows(50))
    unit = planned(raw, tmp_path / "more")
    unit.continue_after(before, KEEP, READ, 1)
    assert (unit.replace, len(unit.slices)) == (True, 2)


@pytest.mark.parametrize("change", ["options", "a log is missing"])
def test_what_cannot_be_refined_again_is_not_replaced(raw, tmp_path, change):
    write_raw(tmp_path / "more", raw_rows(50))
    before = done(planned(raw, tmp_path / "more"))
    if change == "options":
        retire(raw, 150)
        unit = planned(raw, tmp_path / "more")
    else:
        unit = planned(raw)
    with pytest.raises(InvalidOption, match=r"are gone and cannot be refined again: unit=okx"):
        unit.continue_after(before, DROP, READ, 1)
    assert not unit.replace


def test_a_killed_run_of_the_same_logs_is_repeated_and_replaces_nothing(raw, tmp_path):
    write_raw(tmp_path / "more", raw_rows(50))
    pending = PendingUnit(planned(raw, tmp_path / "more").inputs, KEEP)
    unit = planned(raw, tmp_path / "more")
    unit.repeat(pending, KEEP)
    assert (unit.again, unit.replace) == (True, False)
    assert ranges(unit) == [[(0, 50)], [(0, 200)]]


def test_a_killed_run_of_a_log_that_has_grown_replaces_nothing(raw):
    pending = PendingUnit(planned(raw).inputs, KEEP)
    write_raw(raw, raw_rows(300))
    unit = planned(raw)
    unit.repeat(pending, KEEP)
    assert (unit.again, unit.replace, ranges(unit)) == (True, False, [[(0, 300)]])


@pytest.mark.parametrize(
    ("replace", "options", "grown"),
    [(True, KEEP, False), (False, DROP, False), (False, KEEP, True)],
    ids=["it replaced", "other options", "one of its two logs has grown"],
)
def test_a_killed_run_that_may_have_written_other_records_is_replaced(
    raw, tmp_path, replace, options, grown
):
    write_raw(tmp_path / "more", raw_rows(50))
    pending = PendingUnit(planned(raw, tmp_path / "more").inputs, KEEP, replace=replace)
    if grown:
        write_raw(tmp_path / "more", raw_rows(60))
    unit = planned(raw, tmp_path / "more")
    unit.repeat(pending, options)
    assert (unit.again, unit.replace) == (True, True)
