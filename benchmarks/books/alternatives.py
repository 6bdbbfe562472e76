"""The environment of the alternatives, created by `make book-alternatives`.

It is separate because they need an older numpy and pandas than the project, and 900 MB.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.compiled import compiled
from benchmarks.machine import ROOT

PYTHON = ROOT / "build" / "book-alternatives" / "bin" / "python"
PACKAGES = {
    "hftbacktest": (
        "hftbacktest",
        "market depths of a back-test engine (hash map, vector over a range of prices), in Rust, "
        "driven from numba; events in memory in its own layout, local side alone, no orders",
    ),
    "nautilus_trader": (
        "nautilus_trader",
        "order book in Rust; deltas built beforehand, applied through its C interface from C++, "
        "and from a Python loop",
    ),
}
QUESTION = """
import importlib.metadata, importlib.util, json, sys, sysconfig
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is not None:
        version = importlib.metadata.version(name)
        found[name] = {"version": version, "directory": spec.submodule_search_locations[0]}
json.dump({"found": found, "include": sysconfig.get_path("include")}, sys.stdout)
"""


@functools.cache
def installed() -> dict[str, Any]:
    """Version and directory of each installed package, and the directory of Python's headers."""
    if not PYTHON.exists():
        return {"found": {}, "include": ""}
    asked = subprocess.run(
        [PYTHON, "-c", QUESTION, *PACKAGES], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(asked.stdout)
    return answer


def missing(package: str) -> str | None:
    """None if it can run, else the reason why not."""
    if package in installed()["found"]:
        return None
    return f"the package {package} is not installed: make book-alternatives"


def who_is_who() -> list[dict[str, Any]]:
    """Their entries in the list of alternatives of `results.json`."""
    found = installed()["found"]
    return [
        {
            "name": name,
            "title": title,
            "what": what,
            "waits": "",
            "batched": True,
            "missing": missing(name),
            "version": found[name]["version"] if name in found else "",
        }
        for name, (title, what) in PACKAGES.items()
    ]


def nautilus_library() -> Path:
    """Compile native/nautilus_books.cpp against the installed package."""
    directory = Path(installed()["found"]["nautilus_trader"]["directory"])
    (book,) = (directory / "model").glob("book.*.so")
    includes = directory / "core" / "includes"
    return compiled(
        "nautilus_books.cpp",
        *("-O3", "-fPIC", "-shared", f"-I{includes}", f"-I{installed()['include']}"),
        *(str(book), f"-Wl,-rpath,{book.parent}"),
        depends=(includes / "model.h",),
    )
