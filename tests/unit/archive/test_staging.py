"""Rows are staged in queues, and staged queues are merged."""

import random

import numpy as np
import pytest

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.transaction import Digest, staging
from tests.support.records import stored
from tests.support.staged import DAY_NS, LOG, Job, rows


def seqs_of(path):
    return [entry.seq for entry in stored(path)]


def test_a_task_has_one_run_for_each_log(tmp):
    job = Job(tmp).task(rows(range(6), symbol=["A", "B"] * 3))
    runs = job.tasks[0][0]
    assert [run.log for run in runs] == [
        "v1/okx/A/1970-01-02/book",
        "v1/okx/B/1970-01-02/book",
    ]
    assert [seqs_of(job.directory / run.directory) for run in runs] == [[0, 2, 4], [1, 3, 5]]


def test_a_staged_record_is_the_row(tmp):
    job = Job(tmp).task(rows([5]))
    [entry] = stored(job.directory / job.tasks[0][0][0].directory)
    assert (entry.seq, entry.timestamp_ns, entry.type_id, entry.flags, entry.payload) == (
        5,
        DAY_NS + 5,
        7,
        0x100,
        b"5",
    )


def test_rows_are_split_by_the_utc_day_of_their_time(tmp):
    job = Job(tmp).task(rows(range(2), times=[DAY_NS - 1, DAY_NS]))
    assert [run.log.split("/")[3] for run in job.tasks[0][0]] == ["1970-01-01", "1970-01-02"]


def test_rows_in_any_order_are_staged_by_sequence_number(tmp, monkeypatch):
    monkeypatch.setattr(staging, "BUFFER_BYTES", 1)  # every batch is a run
    monkeypatch.setattr(staging, "MAX_RUNS", 3)
    numbers = list(range(400))
    random.Random(1).shuffle(numbers)
    job = Job(tmp).task(*(rows(numbers[i : i + 40]) for i in range(0, 400, 40)))
    [run] = job.tasks[0][0]
    assert (run.first_seq, run.last_seq, run.records) == (0, 399, 400)
    assert [entry.payload for entry in stored(job.directory / run.directory)] == [
        b"%d" % n for n in range(400)
    ]


def test_rows_without_sequence_numbers_keep_their_order(tmp, monkeypatch):
    monkeypatch.setattr(staging, "BUFFER_BYTES", 1)
    job = Job(tmp, seq=False).task(rows([3, 1], seq=False), rows([2, 0], seq=False))
    [run] = job.tasks[0][0]
    found = stored(job.directory / run.directory)
    assert [(entry.seq, entry.payload) for entry in found] == [
        (0, b"3"),
        (1, b"1"),
        (2, b"2"),
        (3, b"0"),
    ]


@pytest.mark.parametrize("buffer", [1, 1 << 20])
def test_a_duplicate_sequence_number_is_refused_and_its_log_named(tmp, monkeypatch, buffer):
    monkeypatch.setattr(staging, "BUFFER_BYTES", buffer)
    job = Job(tmp)
    with pytest.raises(tw.SequenceNotRising, match=rf"seq=2, log={LOG}"):
        job.task(rows([1, 2]), rows([2, 3]))
    assert list(job.directory.iterdir()) == [job.directory / "job.json"], (
        "the attempt left something"
    )


@pytest.mark.parametrize("buffer", [1, 1 << 20])
def test_the_first_of_duplicate_rows_is_kept_if_asked_for(tmp, monkeypatch, buffer):
    monkeypatch.setattr(staging, "BUFFER_BYTES", buffer)
    job = Job(tmp, duplicates="drop").task(rows([1, 2]), rows([2, 3], payload=b"late%d"))
    [run] = job.tasks[0][0]
    found = stored(job.directory / run.directory)
    assert [entry.payload for entry in found] == [b"1", b"2", b"late3"]


def test_more_logs_than_may_be_open_are_staged(tmp, monkeypatch):
    monkeypatch.setattr(staging, "MAX_OPEN", 2)
    monkeypatch.setattr(staging, "BUFFER_BYTES", 1)
    symbols = ["A", "B", "C", "D"]
    job = Job(tmp).task(*(rows(range(i, i + 4), symbol=symbols) for i in (0, 4, 8)))
    assert [run.records for run in job.tasks[0][0]] == [3] * 4


@pytest.mark.parametrize("fan_in", [2, 32])
def test_runs_are_merged_by_sequence_number(tmp, monkeypatch, fan_in):
    monkeypatch.setattr(staging, "MAX_RUNS", fan_in)
    numbers = np.random.default_rng(2).permutation(5000)
    parts = [np.sort(part) for part in np.array_split(numbers, 7)]
    job = Job(tmp)
    for part in parts:
        job.task(rows(part.tolist()))
    job.commit()
    assert [(e.seq, e.payload) for e in stored(tmp / LOG)] == [(n, b"%d" % n) for n in range(5000)]


def test_a_digest_does_not_depend_on_order_or_tasks(tmp):
    one = Job(tmp, batch=1).task(rows(range(10))).tasks[0][2]
    two = Digest()
    job = Job(tmp, batch=1).task(rows([9, 3, 4])).task(rows([0, 1, 2, 5, 6, 7, 8]))
    for _, _, digest in job.tasks:
        two.add(digest)
    assert str(one) == str(two)


@pytest.mark.parametrize(
    "other",
    [
        rows([1, 3]),
        rows([1, 2], payload=b"x%d"),
        rows([1, 2], times=[DAY_NS, DAY_NS + 1]),
        rows([1, 2], times=[DAY_NS + 2, DAY_NS + 1]),
        rows([1, 2], symbol="ETH-USDT"),
    ],
    ids=["number", "payload", "time", "times exchanged", "log"],
)
def test_a_digest_depends_on_every_column_of_a_row(tmp, other):
    digests = [Job(tmp, batch=1).task(batch).tasks[0][2] for batch in (rows([1, 2]), other)]
    assert str(digests[0]) != str(digests[1])


def test_what_one_column_gains_and_another_loses_changes_a_digest(tmp):
    one = rows([1, 2], payload=b"x", times=[DAY_NS + 1, DAY_NS + 2])
    two = rows([1, 3], payload=b"x", times=[DAY_NS + 1, DAY_NS + 1])
    digests = [Job(tmp, batch=1).task(batch).tasks[0][2] for batch in (one, two)]
    assert str(digests[0]) != str(digests[1])


@pytest.mark.parametrize("tasks", [1, 64])
def test_a_row_of_many_runs_is_copied_once_for_each_round(tmp, monkeypatch, tasks):
    """Merging all runs again with every few new ones would cost rows times runs."""
    written = 0

    def counted(writer, columns, *layouts, append=LogWriter.append):
        nonlocal written
        written += len(columns)
        append(writer, columns, *layouts)

    monkeypatch.setattr(LogWriter, "append", counted)
    monkeypatch.setattr(staging, "BUFFER_BYTES", 1)
    monkeypatch.setattr(staging, "MAX_RUNS", 4)
    batches = [rows(range(i, 640, 64)) for i in reversed(range(64))]
    job = Job(tmp)
    for batch in batches if tasks > 1 else [batches]:
        job.task(*(batch if tasks == 1 else [batch]))
    job.commit()
    assert seqs_of(tmp / LOG) == list(range(640))
    assert written <= 640 * 5  # staged, then 64 runs by 4, 16 and 64, and the last ones
