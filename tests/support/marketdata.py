"""The real captures that tests of importers and books read."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def marketdata_directory():
    """The directory of captures; the test is skipped, with a reason, if there is none."""
    given = os.environ.get("TAPEWIRE_MARKETDATA")
    directory = Path(given) if given else ROOT.parent / "shared" / "marketdata"
    if not directory.is_dir():
        pytest.skip(f"needs the captures of real markets: TAPEWIRE_MARKETDATA={given or directory}")
    return directory


def capture(name):
    """One capture, by its path below that directory."""
    path = marketdata_directory() / name
    if not path.is_file():
        pytest.skip(f"needs the capture {name}, which is not in {path.parent}")
    return path


def report_count(name, got, want):
    """Print the counts that a correct book must reach, and fail if it did not."""
    print(f"{name}: {got}/{want}")
    assert got == want, f"{name}: {got}/{want}"
