"""The server of an alternative: started for one measurement, stopped after it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import die_with_parent, until

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def find(program: str) -> str | None:
    """Its path; Debian installs some servers outside of a user's PATH."""
    return shutil.which(program, path=PLACES)


def missing(package: str, found: object, program: str) -> str | None:
    """Why an alternative with a client package and a system server cannot run, or None."""
    lacking = [] if found else [f"the package {package} is not installed"]
    if find(program) is None:
        lacking.append(f"there is no program {program}")
    return "; ".join(lacking) or None


def version(program: str) -> str:
    """The first word with digits and a dot in the output of `--version`."""
    path = find(program)
    assert path is not None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    words = (word.rpartition("=")[2].lstrip("v") for word in said.split())
    return next(word for word in words if word[:1].isdigit() and "." in word)


@contextlib.contextmanager
def running(
    program: str, *arguments: str, directory: Path, answers: Callable[[], bool]
) -> Iterator[None]:
    """A server that accepts connections; stopped at the end of the block or of this process."""
    path = find(program)
    assert path is not None
    said = directory / f"{program}.out"
    with (
        said.open("wb") as out,
        subprocess.Popen(
            [path, *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (this process has no other thread)
        ) as process,
    ):

        def up() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{program} ended by itself:\n{said.read_text()}")
            return answers()

        try:
            until(up, f"{program} answers")
            yield
        finally:
            process.kill()  # there is no state worth saving
