"""Imports of files, killed and run again, leave the same archive as an uninterrupted one."""

import random

import pytest

from tapewire import ingest
from tests.support.captures import content_of
from tests.support.venue_files import MAKERS

FIRST_STEPS = 24  # every import has more of them: syncs, renames and appends, before and after


def killed_at(crew, step, format, files, archive, options):
    """Whether the import was killed at that step; otherwise it ended."""
    child = crew.start(
        "importers.import_until",
        step=step,
        format=format,
        files=[str(file) for file in files],
        to=str(archive),
        **options,
    )
    child.expect("started")
    return child.wait() != 0


def survives_kills(crew, tmp, format, rows, steps):
    """Kill an import into one archive at each of these steps in turn, then run it to its end."""
    files, options = MAKERS[format](tmp, rows)
    summary = ingest.run(format, files, tmp / "complete", **options)
    assert summary.bad, "there are bad rows: they are compared too"
    assert len(summary.logs) > 1
    for step in steps:
        assert killed_at(crew, step, format, files, tmp / "archive", options), f"at {step}"
    again = ingest.run(format, files, tmp / "archive", **options)
    assert again.resumed
    assert content_of(tmp / "archive") == content_of(tmp / "complete")


@pytest.mark.parametrize("format", MAKERS)
def test_two_kills_change_nothing(crew, tmp, format):
    rng = random.Random(format)
    steps = sorted(rng.randrange(5, FIRST_STEPS) for _ in range(2))
    survives_kills(crew, tmp, format, rows=8_000, steps=steps)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", MAKERS)
@pytest.mark.parametrize("seed", range(3))
def test_ten_kills_change_nothing(crew, tmp, format, seed):
    rng = random.Random(seed)
    steps = [rng.randrange(1, FIRST_STEPS) for _ in range(10)]
    survives_kills(crew, tmp, format, rows=100_000, steps=steps)
