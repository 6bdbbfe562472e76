"""The rows of features: five of them over a queue of level changes, beside the book alone.

The bar is the rate of an earlier commit in the same run. TAPEWIRE_BASELINE is its checkout, set up
by `make setup`; without it, the rows have no bar.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.books import events
from benchmarks.harness import Row, Scale, scratch
from benchmarks.machine import ROOT

FAMILY = "features"
UNIT = "M events/s"
BAR = ("≥", 3.0)
PASSES = 2  # of each checkout, in turns: a busy minute affects one
TITLES = {"event": "five features, a row per event", "100ms": "five features, 100 ms grid"}


def _measured(python: str, path: Path, queue: Path, rounds: int) -> dict[str, Any]:
    command = [python, "-m", "benchmarks.books.feature_rates", str(path), str(queue), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _rates(found: list[dict[str, Any]], what: str) -> list[float]:
    """Millions of diffs per CPU second, the best first."""
    rounds = [(one["records"], s) for one in found for s in one["seconds"][what]]
    return sorted((records / seconds / 1e6 for records, seconds in rounds), reverse=True)


def run(scale: Scale) -> list[Row]:
    checkout = os.environ.get("TAPEWIRE_BASELINE")
    pythons = [sys.executable]
    if checkout:
        pythons.append(str(Path(checkout).absolute() / ".venv" / "bin" / "python"))
    found: list[list[dict[str, Any]]] = [[] for _ in pythons]
    with scratch() as directory:
        path = directory / "events.npy"
        np.save(path, events.l2_events(scale.pick(3_000_000, 5_000)))
        for turn in range(scale.pick(PASSES, 1)):
            for i, python in enumerate(pythons):
                queue = directory / f"{i}-{turn}"
                found[i].append(_measured(python, path, queue, scale.pick(7, 1)))
    return _rows(found)


def _rows(found: list[list[dict[str, Any]]]) -> list[Row]:
    rows = []
    for what, title in TITLES.items():
        ours = _rates(found[0], what)
        detail: dict[str, Any] = {"series": ours}
        if len(found) == 1:
            rows.append(Row(FAMILY, f"{title}; TAPEWIRE_BASELINE not set", ours[0], UNIT,
                            detail=detail))  # fmt: skip
            continue
        theirs = _rates(found[1], what)
        detail["against_series"] = theirs
        rows.append(Row(FAMILY, title, ours[0], UNIT, "the baseline", theirs[0], BAR, detail))
    alone = _rates(found[0], "book")
    rows.append(Row(FAMILY, "  the book alone", alone[0], UNIT, detail={"series": alone}))
    return rows
