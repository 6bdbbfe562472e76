"""Compiles the C++ of the benchmarks on first use, and again after a change."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.machine import ROOT

SOURCES = Path(__file__).parent / "native"


@functools.cache
def compiled(name: str, *flags: str, depends: tuple[Path, ...] = ()) -> Path:
    """`native/<name>` as a program, or what `flags` ask for; `depends`: files it includes."""
    compiler = os.environ.get("CXX") or next(
        (name for name in ("c++", "g++", "clang++") if shutil.which(name)), None
    )
    if compiler is None:
        raise RuntimeError(f"{name} needs a C++ compiler; set CXX or install g++")
    source = SOURCES / name
    digest = hashlib.sha256(repr((compiler, flags)).encode())
    for path in (source, *depends):
        digest.update(path.read_bytes())
    program = ROOT / "build" / "benchmarks" / f"{source.stem}-{digest.hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        made = program.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-std=c++20", source, *flags, "-o", made], check=True)
        made.replace(
            program
        )  # two runs may compile at once: the last one wins, with a complete file
    return program


def core() -> Path:
    """The native library of the installed package."""
    spec = importlib.util.find_spec("tapewire._native")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "libtapewire_core.so"


def compiled_against_core(name: str) -> Path:
    """`native/<name>` as a library over the installed core, with the flags of CMake's build."""
    include = ROOT / "native" / "include"
    return compiled(
        name,
        *("-O3", "-DNDEBUG", "-fno-semantic-interposition", "-fPIC", "-shared"),
        *(f"-I{include}", str(core()), f"-Wl,-rpath,{core().parent}"),
        depends=tuple(sorted(include.rglob("*.hpp"))),
    )
