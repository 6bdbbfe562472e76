"""The ledger of a refinement: what is done, what is under way, and what a kill leaves."""

import dataclasses
import json

import pytest

from tapewire.archive.job_marks import JobMarks
from tapewire.book.gaps import Gap
from tapewire.refine.ledger import JOB, DoneUnit, PendingUnit, RefineLedger, UnitEntry

UNIT = "okx/2024-01-01"
KEEP, DROP = {"late": "keep"}, {"late": "drop"}
BOOK, TRADES, QUOTES = (f"okx/BTC-USDT/2024-01-01/{s}" for s in ("book", "trades", "quotes"))
RAW = [{"path": "/raw", "first_seq": 0, "next_seq": 70}]
GAP = dataclasses.asdict(Gap("record", "", "", "", 5, 6, seq=7, timestamp_ns=9))
DONE = DoneUnit(
    RAW,
    KEEP,
    {BOOK: 60, TRADES: 10},
    [GAP],
    {"late": 2},
    [{"what": "gaps: 1", "where": "", "kind": "finding"}],
    [-(2**63)],
)


@pytest.fixture
def ledger(tmp_path):
    return RefineLedger(tmp_path)


def file_of(root):
    (path,) = (root / "_tapewire" / "done" / JOB / "units").rglob("*.json")
    return path


def test_an_entry_is_read_as_it_was_written(ledger):
    ledger.complete(UNIT, DONE)
    assert ledger.entry(UNIT) == UnitEntry(DONE, None)
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [QUOTES], replace=True))
    assert ledger.entry(UNIT) == UnitEntry(DONE, PendingUnit(RAW, KEEP, [QUOTES], True))


def test_units_have_entries_of_their_own(ledger):
    ledger.complete(UNIT, DONE)
    assert ledger.entry("okx") == ledger.entry("okx/2024-01-02") == UnitEntry()


def test_a_run_that_adds_keeps_what_is_done_until_it_completes(ledger):
    ledger.complete(UNIT, DONE)
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [QUOTES]))
    entry = ledger.entry(UNIT)
    assert entry.done == DONE
    assert entry.logs == {BOOK, TRADES, QUOTES}
    ledger.complete(UNIT, DONE)
    assert ledger.entry(UNIT) == UnitEntry(DONE, None)


@pytest.mark.parametrize(("options", "again"), [(DROP, False), (KEEP, True)])
def test_what_is_done_does_not_count_once_a_run_does_it_again(ledger, options, again):
    ledger.complete(UNIT, DONE)
    ledger.begin(UNIT, PendingUnit(RAW, options, [QUOTES]), again=again)
    entry = ledger.entry(UNIT)
    assert entry.done is None
    assert entry.logs == {BOOK, TRADES, QUOTES}, "the logs of the run before may exist"


def test_logs_of_killed_runs_are_remembered_until_one_completes(ledger):
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [BOOK]))
    ledger.begin(UNIT, PendingUnit(RAW, DROP, [TRADES]))
    ledger.begin(UNIT, PendingUnit(RAW, DROP, [QUOTES], replace=True))
    assert ledger.entry(UNIT).pending.logs == sorted([BOOK, TRADES, QUOTES])
    ledger.complete(UNIT, DoneUnit(RAW, DROP, {QUOTES: 1}))
    assert ledger.entry(UNIT).logs == {QUOTES}


def test_a_log_is_listed_once_in_an_entry(ledger):
    """A unit of many days has many logs, and a mark a limited size."""
    ledger.complete(UNIT, DONE)
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [BOOK, TRADES, QUOTES]))
    assert ledger.entry(UNIT).pending.logs == [QUOTES]


@pytest.mark.parametrize(
    ("replace", "left"), [(False, {BOOK, TRADES}), (True, set())], ids=["append", "replace"]
)
def test_logs_that_a_run_may_change_are_finished_again(ledger, tmp_path, replace, left):
    marks = JobMarks(tmp_path, JOB)
    ledger.complete(UNIT, DONE)
    for log in (BOOK, TRADES, QUOTES):
        marks.write(log, [], {}, {})
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [QUOTES], replace))
    assert {log for log in (BOOK, TRADES, QUOTES) if marks.read(log)} == left


def test_a_run_that_is_killed_while_it_removes_marks_removes_them_next_time(
    ledger, tmp_path, monkeypatch
):
    def killed(*_):
        raise KeyboardInterrupt

    marks = JobMarks(tmp_path, JOB)
    ledger.complete(UNIT, DONE)
    marks.write(BOOK, [], {}, {})
    run = PendingUnit(RAW, DROP, [QUOTES], replace=True)
    with monkeypatch.context() as patched:
        patched.setattr(JobMarks, "forget", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.begin(UNIT, run)
    assert marks.read(BOOK) is not None
    ledger.begin(UNIT, run, again=True)
    assert marks.read(BOOK) is None


def test_removed_logs_are_dropped_from_what_is_done(ledger):
    ledger.complete(UNIT, DONE)
    pending = PendingUnit(RAW, KEEP, [QUOTES])
    ledger.begin(UNIT, pending)
    ledger.drop_logs(UNIT, [BOOK, "okx/other/2024-01-01/book"])
    done = dataclasses.replace(DONE, logs={TRADES: 10})
    assert ledger.entry(UNIT) == UnitEntry(done, pending)


def test_dropping_logs_of_a_unit_without_an_entry_changes_nothing(ledger, tmp_path):
    ledger.drop_logs(UNIT, [BOOK])
    assert ledger.entry(UNIT) == UnitEntry()
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("done", "inputs", [{"path": "/raw", "first_seq": "0", "next_seq": 70}]),
        ("done", "inputs", [{"path": "/raw"}]),
        ("done", "inputs", [7]),
        ("done", "inputs", None),
        ("done", "options", []),
        ("done", "logs", [BOOK]),
        ("done", "logs", {BOOK: "60"}),
        ("done", "gaps", [{"first": 1}]),
        ("done", "counts", {"late": None}),
        ("done", "findings", [{}]),
        ("done", "clocks", ["1"]),
        ("done", "more", 1),
        ("pending", "inputs", [{}]),
        ("pending", "options", None),
        ("pending", "logs", [1]),
        ("pending", "replace", "yes"),
    ],
)
def test_a_damaged_entry_counts_as_none(ledger, tmp_path, part, name, value):
    ledger.complete(UNIT, DONE)
    ledger.begin(UNIT, PendingUnit(RAW, KEEP, [QUOTES]))
    path = file_of(tmp_path)
    mark = json.loads(path.read_text())
    mark["result"][part][name] = value
    path.write_text(json.dumps(mark))
    assert ledger.entry(UNIT) == UnitEntry()


@pytest.mark.parametrize("text", ["", "{", '{"result": {}}', "[]"])
def test_an_entry_that_is_no_mark_counts_as_none(ledger, tmp_path, text):
    ledger.complete(UNIT, DONE)
    file_of(tmp_path).write_text(text)
    assert ledger.entry(UNIT) == UnitEntry()
    ledger.complete(UNIT, DONE)
    assert ledger.entry(UNIT).done == DONE


def test_an_entry_without_its_parts_counts_as_none(ledger, tmp_path):
    ledger.complete(UNIT, DONE)
    path = file_of(tmp_path)
    mark = json.loads(path.read_text())
    mark["result"] = {"done": mark["result"]["done"]}
    path.write_text(json.dumps(mark))
    assert ledger.entry(UNIT) == UnitEntry()
