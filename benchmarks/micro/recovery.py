"""Opening a writer on 1, 10 and 100 segments: after a clean close, and after a kill."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import tapewire as tw
from benchmarks.harness import PAYLOAD, TYPE_ID, Row, Scale, Series, pin, quiet, scratch, unpin
from benchmarks.micro.seek import SEGMENTS, fill

FAMILY = "open"


def _open_ms(path: Path) -> float:
    with quiet():
        start = time.perf_counter_ns()
        writer = tw.open_publisher(path)
        took = time.perf_counter_ns() - start
    writer.append(TYPE_ID, PAYLOAD)
    writer.close()
    return took / 1e6


def _die_appending(path: Path, records: int) -> None:
    """Kill a writer in another process: no close, no checkpoint of its last records."""
    child = os.fork()
    if child == 0:
        writer = tw.open_publisher(path)
        for _ in range(records):
            writer.append(TYPE_ID, PAYLOAD)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def run(scale: Scale) -> list[Row]:
    segment_bytes = scale.pick(8 << 20, 1 << 18)
    segments = scale.pick(SEGMENTS, (1, 10))
    clean: dict[int, list[float]] = {n: [] for n in segments}
    killed: dict[int, list[float]] = {n: [] for n in segments}
    unpin()
    with scratch() as directory:
        for n in segments:
            fill(directory / str(n), n, segment_bytes).close()
            _open_ms(directory / str(n))
        # All sizes in each round, so that a busy minute affects them equally.
        for _ in range(scale.pick(15, 2)):
            for n in segments:
                clean[n].append(_open_ms(directory / str(n)))
                _die_appending(directory / str(n), 100)
                killed[n].append(_open_ms(directory / str(n)))
        with tw.open_publisher(directory / "default") as writer:
            writer.append(TYPE_ID, PAYLOAD)
        default = Series(tuple(_open_ms(directory / "default") for _ in range(scale.pick(5, 1))))
    pin(0)

    rows = []
    first, last = segments[0], segments[-1]
    for how, values in (("closed", clean), ("killed", killed)):
        by_count = {n: Series(tuple(values[n])) for n in segments}
        rows += [
            Row(
                FAMILY,
                f"{n} segment{'s'[: n > 1]}, {how} before",
                by_count[n].best,
                "ms",
                None if n == first else f"{first} segment",
                None if n == first else by_count[first].best,
                ("≤", 2.0) if n == last else None,
                {"series": by_count[n].as_dict(), "segments": n, "how": how},
            )
            for n in segments
        ]
    rows.append(
        Row(
            FAMILY,
            "128 MiB segments, closed before",
            default.best,
            "ms",
            detail={"series": default.as_dict()},
        )
    )
    return rows
