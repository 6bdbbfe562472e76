"""The machine, versions and commit of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import harness
from tapewire.bench.host import cpu_info, read_text

ROOT = Path(__file__).resolve().parent.parent


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*args: str) -> str:
        run = subprocess.run(
            ["git", "-C", ROOT, *args], capture_output=True, text=True, check=False
        )
        return run.stdout.strip() if run.returncode == 0 else ""

    commit = git("rev-parse", "HEAD") or "none"
    # Only files that can change a figure; RESULTS.md is the output of an earlier run.
    sources = ("src", "native", "benchmarks", "CMakeLists.txt", "pyproject.toml", "constraints.txt")
    changed = git("status", "--porcelain", "--", *sources, ":!benchmarks/RESULTS.md")
    return commit + ("+changes" if changed else "")


def _filesystem_of_scratch() -> str:
    with harness.scratch() as path:
        run = subprocess.run(
            ["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=False
        )
    return run.stdout.strip() or "unknown"


def facts() -> dict[str, Any]:
    from tapewire import _native

    cpu = cpu_info()
    flags = cpu.get("flags", "").split()
    return {
        "machine": platform.machine(),
        "cpu": cpu.get("model name", platform.processor() or "unknown"),
        "cpus": len(harness.ALL_CPUS),
        "virtual": "hypervisor" in flags,
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "none"),
        "clocksource": read_text(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
        "filesystem": _filesystem_of_scratch(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("tapewire", "numpy", "hdrhistogram")},
        "checksum": _native.select_checksum("automatic"),
        "commit": _commit(),
        "payload_bytes": harness.PAYLOAD_BYTES,
    }
