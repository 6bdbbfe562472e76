"""Run a model through Spin: translate, compile, search, and return the result."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[2] / "native/tests/model/publish_wait_wake.pml"

# NOREDUCE: nearly every step accesses shared memory, so partial-order reduction would gain nothing,
# and the proof does not depend on it.
PAN_OPTIONS = ["-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", "-DMEMLIM=6000"]


@dataclass
class Search:
    """The result of a search."""

    states: int
    depth: int
    violated: str | None  # the assertion, as pan prints it, or "invalid end state"
    unreached: list[str]  # statements of the model that were never executed
    output: str


def _run(command, directory, timeout):
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=timeout, check=False
    )


def _checked(command, directory):
    done = _run(command, directory, 60)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}{done.stderr}"


def search(directory, *, large=False, timeout=100, depth=10_000, **defines):
    """Search all states of the model with these #defines; fails if the search is incomplete.

    `large`: millions of states, for which to compile with optimisation and a wide hash table.
    """
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    _checked(["spin", "-a", *flags, str(MODEL)], directory)
    _checked(
        ["gcc", "-O2" if large else "-O0", "-w", *PAN_OPTIONS, "-o", "pan", "pan.c"], directory
    )
    done = _run(["./pan", f"-m{depth}", f"-w{26 if large else 20}"], directory, timeout)
    return judge(done.stdout + done.stderr)


def judge(output):
    """Read pan's report; any end but "all states searched" or "an error found" is a failure."""
    for cut_short in ("max search depth too small", "MEMLIM", "out of memory"):
        assert cut_short not in output, f"the search is incomplete:\n{output}"
    found = re.search(r"depth reached (\d+), errors: (\d+)", output)
    assert found, f"no report:\n{output}"
    errors = int(found[2])
    message = re.search(r"^pan:1: (?:assertion violated +)?(.*) \(at depth \d+\)$", output, re.M)
    assert (message is not None) == (errors > 0), output
    assert ("Search not completed" in output) == (errors > 0), output
    return Search(
        states=int(re.search(r"(\d+) states, stored", output)[1]),
        depth=int(found[1]),
        violated=message and message[1],
        unreached=re.findall(r"^\t(.+:\d+, state \d+, \"(?!-end-).*\")$", output, re.M),
        output=output,
    )
