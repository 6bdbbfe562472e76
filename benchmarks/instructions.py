"""Instructions per record of the hot calls, by callgrind, compared with a committed baseline.

    python -m benchmarks.instructions            # count and compare
    python -m benchmarks.instructions --write    # count and write the baseline

Unlike time, the count is the same on every run, so it shows a change of a few per cent. It depends
on the compiler as much as on the source, so each compiler has its own baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.compiled import compiled_against_core, core
from benchmarks.counted import OPERATIONS, RECORDS
from benchmarks.machine import ROOT

BASELINE = Path(__file__).parent / "instructions.json"
ALLOWED = 0.05
RENEW = "python -m benchmarks.instructions --write"
CALLGRIND = (
    "--tool=callgrind",
    "--collect-atstart=no",
    "--toggle-collect=measured",
    "--dump-after=measured",
    "--separate-threads=yes",  # the service threads do not count
)


class NotCompared(Exception):
    """The counts cannot be compared with a baseline; the message has the reason."""


@dataclass(frozen=True)
class Counts:
    """Instructions per record for the operations of one kind, and what they depend on."""

    built_by: str
    per_record: dict[str, float]


def compiler_of(binary: Path) -> str:
    """Name and major version of the compiler, from the comment section of its output."""
    data = binary.read_bytes()
    # Output of clang is linked with start-up code from gcc, so look for clang first.
    for name, pattern in (
        ("clang", rb"clang version (\d+)\."),
        ("gcc", rb"GCC: \([^)]*\) (\d+)\."),
    ):
        if found := re.search(pattern, data):
            return f"{name}-{found[1].decode()}"
    raise NotCompared(f"{binary.name} does not say which compiler made it")


def _library() -> Path:
    """The counted calls, made by the compiler of the installed core."""
    library = compiled_against_core("counted.cpp")
    if compiler_of(library) != compiler_of(core()):
        raise NotCompared(
            f"the core was made by {compiler_of(core())} and the counted calls by "
            f"{compiler_of(library)}; set CXX to the former"
        )
    return library


def _totals(directory: Path) -> list[int]:
    """The counts of each part of the main thread, in order."""
    totals = []
    for part in range(1, 2 * len(OPERATIONS) + 1):
        text = (directory / f"out.{part}-01").read_text()
        found = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        assert found, f"part {part} of callgrind's output has no total"
        totals.append(int(found[1]))
    return totals


def count() -> dict[str, Counts]:
    """One run under callgrind: the counts of the kinds "native" and "python"."""
    if shutil.which("valgrind") is None:
        raise NotCompared("needs valgrind")
    library = _library()
    with harness.scratch() as directory:
        run = subprocess.run(
            [
                *("valgrind", *CALLGRIND, f"--callgrind-out-file={directory / 'out'}"),
                *(sys.executable, ROOT / "benchmarks" / "counted.py", library, directory),
            ],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise RuntimeError(f"callgrind ended with {run.returncode}:\n{run.stderr}")
        totals = _totals(directory)
    # The difference between N and 2 N records does not include costs that occur once.
    per_record = {
        operation: (totals[2 * i + 1] - totals[2 * i]) / RECORDS
        for i, operation in enumerate(OPERATIONS)
    }
    # Python's own loop is most of a call from Python and would hide Tapewire's part.
    for call in ("append", "next"):
        own = per_record[f"python {call}"] - per_record.pop(f"empty {call}")
        per_record[f"python {call}, beyond an empty call"] = own
    # valgrind has no AVX-512: the counts depend on which checksum code was selected.
    native = f"{compiler_of(core())} {platform.machine()}, {run.stdout.strip()}"
    built_by = {"native": native, "python": f"{native}, {_interpreter()}"}
    return {
        kind: Counts(name, {op: n for op, n in per_record.items() if op.startswith(kind)})
        for kind, name in built_by.items()
    }


def _interpreter() -> str:
    """Version and build of this Python, whose own loop is part of a call from Python."""
    version = ".".join(platform.python_version_tuple()[:2])
    maker = "-".join(platform.python_compiler().lower().split()[:2]).partition(".")[0]
    chosen = sysconfig.get_config_var("CONFIG_ARGS") or ""
    options = [
        name
        for name in ("--enable-optimizations", "--with-lto", "--enable-shared")
        if name in chosen
    ]
    return " ".join([f"Python {version} by {maker}", *options])


def baseline(built_by: str, path: Path = BASELINE) -> dict[str, float]:
    known = json.loads(path.read_text())
    if built_by not in known:
        raise NotCompared(
            f"no baseline for this compiler ({built_by}), only for: {'; '.join(known)}; "
            f"to make one: {RENEW}"
        )
    counts: dict[str, float] = known[built_by]
    return counts


def grown(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """A line for each operation that takes over 5 % more instructions than the baseline."""
    if now.keys() != before.keys():
        return [f"{sorted(now)} were counted, the baseline has {sorted(before)}; renew it: {RENEW}"]
    return [
        f"{operation}: {count:.1f} instructions a record, {before[operation]:.1f} before "
        f"({count / before[operation] - 1:+.1%}, allowed {ALLOWED:+.0%}); if it is meant: {RENEW}"
        for operation, count in now.items()
        if count > before[operation] * (1 + ALLOWED)
    ]


def _write(counts: dict[str, Counts]) -> None:
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    for one in counts.values():
        known[one.built_by] = {name: round(value, 1) for name, value in one.per_record.items()}
    BASELINE.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--write", action="store_true", help="make this the baseline")
    write = parser.parse_args().write
    counts = count()
    complaints: list[str] = []
    for one in counts.values():
        print(one.built_by)
        for operation, value in one.per_record.items():
            print(f"  {operation:36} {value:8.1f} instructions a record")
        if not write:
            try:
                complaints += grown(one.per_record, baseline(one.built_by))
            except NotCompared as reason:
                complaints.append(f"not compared: {reason}")
    if write:
        _write(counts)
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
