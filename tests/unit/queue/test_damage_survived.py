"""Damage of every kind, in a separate process: no crash and no hang."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tapewire as tw
from tests.support.damaged_files import (
    ACTIVE,
    CONTROL,
    FILES,
    LOCK,
    READER,
    SEALED,
    STATS,
    TAIL,
    Original,
    assert_typed,
    by_log,
    by_name,
    by_writer,
    key,
    outcome,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return Original(tmp_path_factory.mktemp("original") / "q")


# ---- in a separate process: no crash either -----------------------------------------------------


def run_child(code, *arguments, timeout=100):
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


CUT_CHILD = """
import sys
from tests.unit.queue import test_damage_survived as t
for case in sys.argv[2:]:
    name, length = case.split(":")
    directory = t.Path(sys.argv[1]) / case.replace("/", "-")
    print(case, flush=True)
    t.use_while_cut(t.Original(directory), directory, name, int(length))
"""


def attempt(call):
    """Repeat the call until it raises; only typed errors may be raised."""
    for _ in range(300):
        try:
            call()
        except Exception as error:
            assert_typed(error)
            return


def use_while_cut(original, directory, name, length):
    """Truncate a file under an open writer and two open readers, then use all three."""
    with tw.open_publisher(directory) as writer:
        log = tw.open_log(directory)
        named = tw.open_subscriber(directory, "x", start="earliest")
        assert key(log.next()) == key(named.next()) == original.records[0]
        os.truncate(directory / name, length)
        for reader in (log, named):
            for call in (
                reader.next,
                reader.read_batch,
                lambda reader=reader: reader.wait(0),
                lambda reader=reader: reader.seek_seq(40),
                lambda reader=reader: reader.seek_time(10**18 + 60),
                reader.skip_damaged,
                reader.seek_end,
                reader.writer_status,
            ):
                attempt(call)
        attempt(named.commit)
        attempt(lambda: writer.append(1, b"more"))
        attempt(lambda: writer.append_batch(1, [b"more"] * 10))
        attempt(writer.flush_sync)
        attempt(writer.metrics)
        for handle in (log, named, writer):
            attempt(handle.close)


def test_a_file_truncated_under_open_handles_causes_no_crash_or_hang(tmp):
    cases = [f"{CONTROL}:0", f"{READER}:0", f"{SEALED}:0", f"{SEALED}:4096", f"{ACTIVE}:0"]
    child = run_child(CUT_CHILD, tmp, *cases, timeout=90)
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.split() == cases


SWEEP_CHILD = """
import sys
from tests.unit.queue import test_damage_survived as t
t.sweep(t.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
"""


def sweep(directory, seed, rounds):
    """Random damage to several files at once; only crashes, hangs and untyped errors count."""
    chance = random.Random(seed)
    original = Original(directory / "original")
    names = [*FILES, "000000001.q"]
    for n in range(rounds):
        target = original.write(directory / f"q{n}")
        for _ in range(chance.randint(1, 4)):
            path = target / chance.choice(names)
            data = bytearray(path.read_bytes())
            kind = chance.randrange(5)
            if kind <= 2 and data:
                for _ in range(chance.choice((1, 2, 40))):
                    # Mostly near the start, where the headers are.
                    data[min(chance.randrange(len(data)), chance.randrange(1, 900))] ^= (
                        (chance.randrange(1, 256)) if len(data) > 1 else 1
                    )
            elif kind == 3:
                del data[chance.randrange(len(data) + 1) :]
            else:
                other = target / chance.choice(names)
                data = bytearray(other.read_bytes())
            path.write_bytes(data)
        for how in (by_log, by_name, by_writer, by_log):
            outcome(how, target)
        shutil.rmtree(target)
    print("survived", rounds)


def test_damage_of_many_kinds_at_once_causes_no_crash_or_hang(tmp):
    child = run_child(SWEEP_CHILD, tmp, 1, 400)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["survived", "400"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_much_more_damage_causes_no_crash_or_hang(tmp, seed):
    child = run_child(SWEEP_CHILD, tmp, seed, 10_000, timeout=110)
    assert child.returncode == 0, child.stderr


FIFO_CHILD = """
import sys
from tests.unit.queue import test_damage_survived as t
for directory in sys.argv[1:]:
    for how in (t.by_log, t.by_name, t.by_writer):
        print(how.__name__, "opens", directory, flush=True)
        t.outcome(how, t.Path(directory))
print("done")
"""


def test_a_pipe_in_place_of_a_file_causes_no_hang(original, tmp):
    names = [CONTROL, READER, LOCK, TAIL, STATS, SEALED, ACTIVE, "000000002.idx"]
    for name in names:
        directory = original.write(tmp / Path(name).name)
        (directory / name).unlink()
        os.mkfifo(directory / name)
    try:
        child = run_child(FIFO_CHILD, *(tmp / Path(name).name for name in names), timeout=15)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"hangs: {error.stdout.decode().splitlines()[-1]}")
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines()[-1] == "done"
