"""10 GB through one queue to 50 readers: nothing lost, nothing grows."""

import contextlib
import json
import os
import shutil
import statistics
import time
from pathlib import Path

import pytest

from tests.crash.tape import Board
from tests.stress import soak
from tests.support.processes import Child

TOTAL_BYTES = 10_000_000_000
DISK_BYTES = 2 << 30
KILLS = 8
PROGRAM = "from tests.stress.soak import main; main()"

# One process each: readers in one interpreter share its GIL, its mappings and its threads.
CREWS = {
    "parked": [{"wait": "park"}] * 10 + [{"wait": "spin a little"}] * 4,
    "asleep": [{"wait": "sleep", "batch": 64}] * 6 + [{"wait": "sleep", "batch": 1000}] * 6,
    "one by one": [{"batch": 0}] * 6 + [{"name": None}, {"name": None, "batch": 64}],
    "slow and restarting": [{"nap": 0.02}] * 3
    + [{"long_nap": 3.0}] * 2
    + [{"restart_every": 5}, {"restart_every": 50, "wait": "sleep"}] * 2,
    "killed": [{"wait": "park"}] * 3 + [{"wait": "sleep"}] * 2 + [{"batch": 0}] * 2,
}
LASTING = [name for name in CREWS if name != "killed"]


def habits():
    """The crews, with a row of the board and, unless it is anonymous, a name for each reader."""
    row = 0
    crews = {}
    for crew, members in CREWS.items():
        crews[crew] = []
        for member in members:
            crews[crew].append({"name": f"reader-{row}", **member, "row": row})
            row += 1
    assert row == 50
    return crews


def sample(pid):
    """The memory and descriptors of a process; None if it has just ended.

    Mapped segments count as file or shared memory, not as anonymous.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    if "RssAnon:" not in status:  # a zombie has no memory
        return None
    return {
        "anonymous KiB": int(status.partition("RssAnon:")[2].split()[0]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "mappings": Path(f"/proc/{pid}/maps").read_text().count("\n"),
    }


# How much more the last third of the run may hold than the first, by its median. A reader is in one
# segment, and its batch may hold two more, so the number of mappings varies by that.
GROWTH = {"anonymous KiB": 1024, "descriptors": 4, "threads": 0, "mappings": 16}


def judge(name, samples):
    """Compare the thirds of a process's lifetime, without its first tenth, the warm-up."""
    assert len(samples) >= 30, f"{name}: {len(samples)} samples are too few to judge"
    samples = samples[len(samples) // 10 :]
    third = len(samples) // 3
    for what, allowed in GROWTH.items():
        first = statistics.median(one[what] for one in samples[:third])
        last = statistics.median(one[what] for one in samples[-third:])
        print(f"{name}: {what} {first:g} -> {last:g}")
        assert last <= first + allowed, f"{name}: {what} grew from {first} to {last}"


@pytest.fixture
def scratch(tmp):
    if shutil.disk_usage(tmp).free < DISK_BYTES:
        pytest.skip(f"needs {DISK_BYTES >> 30} GiB free in {tmp.parent}")
    return tmp


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_gigabytes_through_fifty_readers(scratch):
    queue, board_file = scratch / "queue", scratch / "board"
    board = Board(board_file, create=True)
    shared = {"queue": str(queue), "board": str(board_file)}
    crews = habits()
    running = {}
    samples = {name: [] for name in ["writer", *crews]}
    segments = []
    kills = 0

    with contextlib.ExitStack() as children:

        def start(role, name, **arguments):
            child = Child(PROGRAM, role, json.dumps(shared | arguments))
            running[name] = children.enter_context(child)
            child.expect("ready")

        start("writer", "writer", total_bytes=TOTAL_BYTES)
        for name, members in crews.items():
            start("readers", name, habits=members)
        running["writer"].send("begin")
        while not board[soak.END]:
            time.sleep(0.1)
            for name, child in running.items():
                assert child.running or board[soak.END], f"{name} ended early: {child.line()}"
                if child.running and (held := sample(child.pid)) is not None:
                    samples[name].append(held)
            segments.append(len(list(queue.glob("*.q"))))
            if kills < KILLS and board[soak.WRITTEN] > TOTAL_BYTES * (kills + 1) // (KILLS + 2):
                running["killed"].kill()
                start("readers", "killed", habits=crews["killed"])
                kills += 1
        wrote = json.loads(running.pop("writer").line())
        for name, child in running.items():
            assert json.loads(child.line(timeout=120))["failures"] == [], name

    assert wrote["bytes"] >= TOTAL_BYTES
    assert kills == KILLS
    assert max(segments) <= soak.MAX_SEGMENTS + 1, "one may be prepared ahead"
    assert max(segments) >= soak.MAX_SEGMENTS // 2, "the slow readers should keep many"
    assert wrote["retired"] > 5 * soak.MAX_SEGMENTS
    rows = {member["row"]: member for members in crews.values() for member in members}
    for row, member in rows.items():
        at = soak.FIRST_ROW + soak.ROW_WORDS * row
        if member["name"] is not None:
            assert board[at + soak.COMMITTED] == wrote["records"], (
                f"{member} did not get to the end"
            )
            assert board[at + soak.OVERTAKEN] == 0
        if member in crews["killed"]:
            assert board[at + soak.LIVES] == KILLS + 1
    for name in ["writer", *LASTING]:
        judge(name, samples[name])
