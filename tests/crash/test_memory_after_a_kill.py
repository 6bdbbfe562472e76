"""A killed writer's queue on tmpfs: opening it takes no more memory than its records."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.support.commands import tapewire

KILLED = """
    import os, signal, sys
    import tapewire as tw

    writer = tw.open_publisher(sys.argv[1])
    for n in range(100):
        writer.append(1, b"record %d" % n)
    if sys.argv[2] == "in a record":
        writer.reserve(1, 3000).buffer[:] = b"x" * 3000
    os.kill(os.getpid(), signal.SIGKILL)
"""
MOST_BYTES = 8 << 20  # a segment has 128 MiB


def is_in_memory(path):
    found = subprocess.run(["stat", "-f", "-c", "%T", path], check=True, capture_output=True)
    return found.stdout.strip() == b"tmpfs"


def taken(queue):
    return sum(path.stat().st_blocks * 512 for path in queue.glob("*.q*"))


@pytest.fixture(params=["between records", "in a record"])
def queue(tmp, request):
    if not is_in_memory(tmp):
        pytest.skip("needs a scratch directory on tmpfs: only there a look takes blocks")
    script = [sys.executable, "-c", textwrap.dedent(KILLED), os.fspath(tmp / "q"), request.param]
    assert subprocess.run(script, check=False).returncode == -signal.SIGKILL
    assert taken(tmp / "q") < MOST_BYTES
    return tmp / "q"


def read(queue):
    with tw.open_log(queue) as reader:
        assert len(list(reader)) == 100


def read_on(queue):
    with tw.open_subscriber(queue, "reader") as reader:
        assert len(list(reader)) == 100
        assert not reader.wait(0.05)
        assert not reader.seek_seq(1000)


def write_on(queue):
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.append(1, b"more") == 100
        assert taken(queue) < MOST_BYTES


@pytest.mark.parametrize(
    "look",
    [
        read,
        read_on,
        write_on,
        status,
        lambda queue: tapewire("verify", queue),
        lambda queue: tapewire("doctor", queue),
        lambda queue: tapewire("export", queue, "--to", queue / "out.csv"),
    ],
    ids=["read", "read on", "write on", "status", "verify", "doctor", "export"],
)
def test_it_takes_no_memory_to_look_at_it(queue, look):
    look(queue)
    assert taken(queue) < MOST_BYTES
