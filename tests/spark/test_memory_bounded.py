"""A worker's memory does not depend on the length of a day."""

import shutil
import tempfile
from pathlib import Path

import pytest

from benchmarks.spark import scale

SMALL, LARGE = 1, 8  # GB of log
ALLOWED = 0.2


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("work", scale.WORK)
def test_a_worker_takes_no_more_memory_for_a_log_eight_times_as_long(work, record_property):
    directory = Path(tempfile.gettempdir())  # on a disk, so that it is not measured
    needed = LARGE * scale.GB * (2 if work == "refine" else 1) * 1.2
    if shutil.disk_usage(directory).free < needed:
        pytest.skip(f"needs {needed / 1e9:.0f} GB of disk in {directory}")
    runs = [scale.measure(work, size * scale.GB, directory) for size in (SMALL, LARGE)]
    for run in runs:
        record_property(f"{work}, {run.gigabytes:.0f} GB, worker", run.worker_bytes)
    assert scale.bounded(runs)[work] < ALLOWED, runs
    assert runs[1].jvm_bytes < 2 << 30  # its heap is 1 GiB, and there is more than a heap
