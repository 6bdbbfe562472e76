"""Chronicle Queue for Java, open-source edition: persisted and mapped, like Tapewire."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import jvm
from benchmarks.harness import Series, percentiles

TITLE = "Chronicle Queue (Java)"
WHAT = (
    "persisted, a mapped file; writeBytes, read in place, no checksum; one mapping, its pages "
    "faulted in; busy-spinning tailer; two JVMs, each confined to one core, SerialGC, warmed up"
)

_FLAGS = (
    # Required by its documentation from Java 17 on.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    # Otherwise it reports its use to its vendor, prints a banner and runs a disk space monitor.
    "-Dchronicle.analytics.disable=true",
    "-Dchronicle.announcer.disable=true",
    "-Dchronicle.disk.monitor.disable=true",
    "-Dslf4j.internal.verbosity=ERROR",
)


def missing() -> str | None:
    return jvm.missing()


def version() -> str:
    return f"{jvm.pinned('chronicle-queue')}, Java {jvm.java_version()}"


def one_way(
    messages: int, size: int, gap_ns: int, directory: Path
) -> np.ndarray[Any, np.dtype[np.int64]]:
    return jvm.one_way("chronicle", _FLAGS, messages, size, gap_ns, directory)


def throughput(messages: int, size: int, directory: Path) -> float:
    """One call per message on both sides; warmed up by two million messages."""
    return jvm.throughput("chronicle", _FLAGS, messages, size, directory)


def calls(messages: int, size: int, directory: Path) -> dict[str, dict[str, Any]]:
    """The cost of one `append` and of one `tail`, each by itself, in one warm thread.

    `series` are means of rounds with no clock inside, `percentiles` those of single calls with
    the two clock readings around them.
    """
    names = ("append", "tail")
    with tempfile.TemporaryDirectory(dir=directory, prefix="chronicle-") as own:
        means = jvm.alone(_FLAGS, "tapewire.compare.Micro", names, own, size, messages)
        return {
            name: {
                "series": Series(tuple(means[name])).as_dict(),
                "percentiles": percentiles(jvm.read_latencies(Path(own) / name, messages)),
            }
            for name in names
        }


def append_ns(messages: int, size: int, directory: Path) -> float:
    """The best round's mean."""
    return float(calls(messages, size, directory)["append"]["series"]["best"])


def tail_ns(messages: int, size: int, directory: Path) -> float:
    """The best round's mean."""
    return float(calls(messages, size, directory)["tail"]["series"]["best"])
