"""Ctrl-C during a job, as typed in a terminal."""

import os
import signal
import subprocess
import sys

import pytest

from tapewire import ingest
from tapewire.demo.simulated import write_capture


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ctrl_c_ends_a_job_without_a_traceback_and_leaves_nothing_incomplete(tmp, eventually):
    capture = write_capture(tmp / "capture.gz", seconds=120)
    ingest.run("binance-spot", [capture], tmp / "archive", price_scale=2, size_scale=3)
    shop = tmp / "out" / "_tapewire" / "features"
    command = [sys.executable, "-m", "tapewire.cli", "etl", "features"]
    options = ["--sample", "event", "--master", "local[2]"]
    with subprocess.Popen(
        [*command, str(tmp / "archive"), str(tmp / "out"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        eventually(lambda: shop.is_dir() and os.listdir(shop), timeout=200)
        os.killpg(job.pid, signal.SIGINT)  # in a terminal, the workers get it too
        said, errors = job.communicate(timeout=120)
    assert (job.returncode, said) == (128 + signal.SIGINT, "")
    assert errors.endswith("run it again to continue: finished parts are kept\n")
    assert "ERROR" not in errors
    assert "Traceback" not in errors
    assert os.listdir(shop) == []
    assert not list((tmp / "out").glob("venue=*"))
