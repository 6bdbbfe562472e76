"""The Spark sink, killed at any step, loses, duplicates and tears nothing."""

import os
import random
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tapewire.archive.transaction.publish import Archive
from tapewire.queue import find_queues
from tests.crash.crew import ROOT
from tests.crash.sinks import job_of
from tests.support.records import stored
from tests.support.staged import LOG, rows

FIRST_STEPS = 30  # every batch has more
AGE = 1_700_000_000
PATIENCE = 200.0  # a child imports PySpark: slow on a busy machine


def content(archive):
    found = {}
    for path in find_queues(archive):
        name = os.path.relpath(path, archive)
        assert not name.startswith("_tapewire/batches")
        if not name.startswith("_tapewire"):
            found[name] = stored(path)
    return found


def committed(directory, batches, **options):
    for batch in range(batches):
        job_of(directory, batch).commit()
    if options:
        job_of(directory, batches, **options).commit()
    return content(directory)


def killed_at(crew, step, archive, batch, **options):
    """Whether it was killed at that step; otherwise it ended."""
    child = crew.start("sinks.commit_until", step=step, root=str(archive), batch=batch, **options)
    return child.wait(PATIENCE) != 0


def is_clean(archive):
    return os.listdir(archive / "_tapewire" / "staging") == []


def is_decided(archive):
    """Whether a batch was decided and is not completely published."""
    return any(Archive(archive).manifests.decided())


def ends_at(died):
    """Whether the steps reach the end: each one killed a commit, until a commit ended."""
    return died[0] and not died[-1] and died == sorted(died, reverse=True)


def survives_kills(crew, tmp, steps, half=False):
    """Kill each batch at one step, check that it is complete or absent, then repeat it.

    With `half`, steps count from where the first log has its rows and the second one does not.
    Returns for each step whether it exists.
    """
    expected = committed(tmp / "complete", len(steps))
    archive = tmp / "archive"
    died = []
    for batch, step in enumerate(steps):
        died.append(killed_at(crew, step, archive, batch, published=half))
        if half:
            there = content(archive)
            assert is_decided(archive)
            assert len(there[LOG]) == batch * 100 + 100
            assert LOG.replace("BTC-USDT", f"NEW-{batch}") not in there
        Archive(archive).recover()
        seen = content(archive).get(LOG, [])
        assert len(seen) in (batch * 100, batch * 100 + 100), f"torn by a kill at step {step}"
        job_of(archive, batch).commit()
        assert is_clean(archive)
    assert content(archive) == expected
    return died


def test_two_kills_at_any_step_change_nothing(crew, tmp):
    rng = random.Random(7)
    assert all(survives_kills(crew, tmp, [rng.randrange(1, FIRST_STEPS) for _ in range(2)]))


def test_two_kills_while_publishing_change_nothing(crew, tmp):
    survives_kills(crew, tmp, [1, 2], half=True)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_each_step_changes_nothing(crew, tmp):
    assert ends_at(survives_kills(crew, tmp, list(range(1, 60))))


def overwriting_survives(crew, tmp, steps, exchanged=False):
    """Likewise; with `exchanged`, steps count from where the log is replaced."""
    died = []
    expected = committed(tmp / "complete", 1, overwrite=True)
    for step in steps:
        archive = tmp / f"archive-{step}"
        job_of(archive, 0).commit()
        old = content(archive)[LOG]
        died.append(killed_at(crew, step, archive, 1, overwrite=True, published=exchanged))
        now = content(archive)[LOG]
        assert now in (old, expected[LOG]), f"torn by a kill at step {step}"
        assert old != expected[LOG]
        if exchanged:
            assert is_decided(archive)
            assert now == expected[LOG]
        job_of(archive, 1, overwrite=True).commit()
        assert content(archive) == expected
        assert is_clean(archive)
    return died


def test_two_kills_while_replacing_leave_the_old_or_the_new_log(crew, tmp):
    overwriting_survives(crew, tmp, [1, 3], exchanged=True)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_each_step_while_replacing_leaves_the_old_or_the_new_log(crew, tmp):
    assert ends_at(overwriting_survives(crew, tmp, range(1, 60)))


# The same with Spark: its driver is killed, and its workers.


def drive(directory, batch="never"):
    """Whether the queries ended."""
    script = ROOT / "tests" / "crash" / "spark_driver.py"
    with open(directory / "driver.log", "wb") as log:  # not a pipe, which workers would keep open
        code = subprocess.run(
            [sys.executable, script, str(directory), str(batch)],
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
            stdout=log,
            stderr=log,
            timeout=500,
            check=False,
        ).returncode
    assert code in (0, -signal.SIGKILL), (directory / "driver.log").read_text()[-4000:]
    return code == 0


def queries_survive(tmp, kills):
    """A driver's three queries, killed at once: before deciding, while publishing, and after it."""
    directory = tmp / "in"
    directory.mkdir()
    batches = kills + 1
    for number in range(batches):
        table = pa.Table.from_batches(
            [
                rows(range(number * 100, number * 100 + 100)),
                rows([1], symbol=f"NEW-{number}"),
            ]
        )
        pq.write_table(table, directory / f"{number}.parquet")
        os.utime(directory / f"{number}.parquet", (AGE + number, AGE + number))
    # What a reader sees of batch n after a kill in it: BTC-USDT comes before NEW-n.
    seen = {"staged": 0, "half": 100, "published": 100}
    for batch in range(kills):
        assert not drive(tmp, batch), f"batch {batch} was not killed"
        for place, more in seen.items():
            archive = tmp / place
            there = (archive / LOG).exists()
            found = [entry.seq for entry in stored(archive / LOG)] if there else []
            # A new log is created, not appended to: in batch 0, "half" ends with its creation.
            expected = batch * 100 + (0 if (batch, place) == (0, "half") else more)
            assert found == list(range(expected)), f"batch {batch} killed where it is {place}"
            new = archive / LOG.replace("BTC-USDT", f"NEW-{batch}")
            assert new.exists() == (place == "published")
    assert drive(tmp)
    for place in seen:
        archive = tmp / place
        assert [(entry.seq, entry.payload) for entry in stored(archive / LOG)] == [
            (n, b"%d" % n) for n in range(batches * 100)
        ]
        for number in range(batches):
            assert len(stored(archive / LOG.replace("BTC-USDT", f"NEW-{number}"))) == 1
        assert is_clean(archive)
    assert (tmp / "worker-killed").exists(), "a worker was killed, too"


@pytest.mark.timeout(900)  # three starts of a driver, some seconds each on an idle machine
def test_a_driver_killed_before_during_and_after_publishing_writes_each_row_once(tmp):
    queries_survive(tmp, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_driver_killed_ten_times_in_each_phase_writes_each_row_once(tmp):
    queries_survive(tmp, 10)
