"""An import that is killed and run again leaves the same archive as an uninterrupted one."""

import random
import shutil
import time

import pytest

from tapewire import ingest
from tests.support.captures import content_of, futures_lines, uncrossed, write_capture

FORMAT = "binance-usdm"


def uninterrupted(directory, capture):
    summary = ingest.run(FORMAT, [capture], directory)
    content = content_of(directory)
    assert summary.gaps > 1, "the missing diff and the bad rows are gaps: ledgers are compared too"
    assert summary.bad
    assert any("/2023-11-14/" in name for name in summary.logs), "it crosses midnight"
    assert any("/2023-11-15/" in name for name in summary.logs)
    return content


def run_to_its_end(crew, capture, archive):
    """The summary of the import, and how many chunks it wrote."""
    child = crew.start("importers.run_import", format=FORMAT, files=[str(capture)], to=str(archive))
    child.expect("started")
    chunks = 0
    while (message := child.line.hear()) == ["chunk"]:
        chunks += 1
    word, summary = message
    assert word == "done", summary
    assert child.wait() == 0
    return summary, chunks


def survives_kills(crew, tmp, lines, kills, seed):
    capture = write_capture(tmp / "capture.gz", futures_lines(lines, gap_at=lines // 3))
    want = uninterrupted(tmp / "complete", capture)
    _, chunks = run_to_its_end(crew, capture, tmp / "measured")
    rng = random.Random(seed)
    for _ in range(kills):
        child = crew.start(
            "importers.run_import", format=FORMAT, files=[str(capture)], to=str(tmp / "archive")
        )
        child.expect("started")
        for _ in range(rng.randrange(chunks - 1)):
            child.expect("chunk")
        time.sleep(rng.uniform(0, 0.003))  # at any point of the next chunk
        assert child.kill() == -9
    summary, _ = run_to_its_end(crew, capture, tmp / "archive")
    assert summary["resumed"]
    assert content_of(tmp / "archive") == want


def test_two_kills_at_random_change_nothing(crew, tmp):
    survives_kills(crew, tmp, lines=9_000, kills=2, seed=7)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_at_random_change_nothing(crew, tmp, seed):
    survives_kills(crew, tmp, lines=60_000, kills=10, seed=seed)


@pytest.mark.parametrize("step", [8, 13, 18, 23])
def test_a_kill_of_an_overlapping_import_leaves_out_the_same(crew, tmp, step):
    """What the archive has already is decided by its state before the killed run."""
    lines = uncrossed(futures_lines(9_000, bad_every=0))
    first = write_capture(tmp / "first.gz", lines[:5_000])
    second = write_capture(tmp / "second.gz", [*lines[2_000:], *lines[-3_000:]])
    for name in ("complete", "archive"):
        ingest.run(FORMAT, [first], tmp / name)
    summary = ingest.run(FORMAT, [second], tmp / "complete")
    assert sum(summary.skipped.values()) > 2_000
    child = crew.start(
        "importers.import_until",
        step=step,
        format=FORMAT,
        files=[str(second)],
        to=str(tmp / "archive"),
    )
    child.expect("started")
    assert child.wait() != 0
    again, _ = run_to_its_end(crew, second, tmp / "archive")
    assert again["resumed"]
    assert again["skipped"] == summary.skipped
    assert content_of(tmp / "archive") == content_of(tmp / "complete")


def killed_at_each_step(crew, tmp, every):
    """Kill an import at every `every`-th step, and each time run it again to its end."""
    lines = futures_lines(120, symbols=["AAA"], bad_every=29, gap_at=40)
    capture = write_capture(tmp / "capture.gz", lines)
    want = uninterrupted(tmp / "complete", capture)
    step = 1
    while True:
        archive = tmp / f"at-{step}"
        child = crew.start(
            "importers.import_until",
            step=step,
            format=FORMAT,
            files=[str(capture)],
            to=str(archive),
        )
        child.expect("started")
        if child.wait() == 0:
            return step
        print(f"killed at step {step}")
        run_to_its_end(crew, capture, archive)
        assert content_of(archive) == want
        shutil.rmtree(archive)
        step += every


def test_a_kill_at_any_sync_rename_or_append_changes_nothing(crew, tmp):
    """Including those of instruments.json and of the job's file."""
    assert killed_at_each_step(crew, tmp, every=17) > 40


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_every_single_step_changes_nothing(crew, tmp):
    assert killed_at_each_step(crew, tmp, every=1) > 40
