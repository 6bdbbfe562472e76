"""Sessions for benchmarks, and a way to read every value of a DataFrame."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = min(2, os.cpu_count() or 1)


@contextlib.contextmanager
def session(cores: int = CORES) -> Iterator[SparkSession]:
    """A local session with so many cores, stopped at the end."""
    from tapewire import spark as tws

    spark = tws.session("benchmark", master=f"local[{cores}]")
    try:
        yield spark
    finally:
        spark.stop()


def seconds(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def everything(frame: DataFrame) -> list[int | None]:
    """A number computed from every value of every column, so that no column and no row is skipped.

    Exact integers: sides that read the same rows give the same number, in any order.
    """
    from pyspark.sql import functions as F

    sums = [F.count("*")]
    for name, kind in frame.dtypes:
        column = F.col(name)
        if kind in ("binary", "string"):
            column = F.length(column)
        elif kind == "timestamp":
            column = F.unix_micros(column)
        elif kind == "double":
            column = F.hash(column)
        sums.append(F.bit_xor(column))
        if kind in ("binary", "string"):
            sums.append(F.sum(column))
    return list(frame.agg(*sums).first() or ())


def in_process(module: str, *arguments: object) -> Any:
    """The JSON that `python -m module` prints as its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
