"""States after a power failure: pages, lengths and names of different ages in one directory.

Writers of every kind are recorded (`recorder.c`, `recorded_runs.py`), power is cut at any moment of
the record, and any subset of what was not synced is lost (`lost_writes.py`). Readers and writers
then open the image (`aftermath.py`): all records that `flush_sync` acknowledged exist, no byte is
invalid, each hole is reported. A failing case is kept, and can be checked again by
`python -m tests.crash.power_cuts DIRECTORY`.
"""

import collections
import re
import shutil

import pytest

from tests.crash.lost_writes import ADVERSARIES, Crash, newest
from tests.crash.power_cuts import Case, choose, record_runs, run_cases
from tests.crash.recorded_runs import AGAIN, RUNS
from tests.crash.recording import Recording, record

CASES = 300
LONG_RECORDINGS = 5
LONG_CASES = 2000


@pytest.fixture(scope="module")
def recordings(module_tmp):
    return record_runs(module_tmp, seed=0)


@pytest.mark.parametrize("first", range(0, CASES, 100))
def test_what_was_acknowledged_outlives_any_loss(recordings, tmp, first):
    run_cases(recordings, range(first, first + 100), tmp)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, LONG_RECORDINGS + 1))
def test_what_was_acknowledged_outlives_thousands_of_losses(tmp, seed):
    recordings = record_runs(tmp, seed)
    run_cases(recordings, range(seed * LONG_CASES, (seed + 1) * LONG_CASES), tmp)


def test_the_cases_cover_every_run_and_every_adversary(recordings):
    chosen = [choose(recordings, seed) for seed in range(CASES)]
    assert {name for name, *_ in chosen} == {*RUNS, *AGAIN}
    assert {adversary for _, _, adversary, _ in chosen} == set(ADVERSARIES)
    assert sum(bool(crash.kept) for _, crash, _, _ in chosen) > CASES / 2
    assert sum(len(crash.doubts) > 3 for _, crash, _, _ in chosen) > CASES / 2


def test_where_nothing_is_lost_the_image_is_the_directory(tmp):
    queue, log = tmp / "q", tmp / "log"
    record(queue, log, "recorded_runs", "reopened", 1, 0)
    recording = Recording(log)
    crash = Crash(recording, recording.moments[-1])
    image = crash.image(newest(crash.doubts))
    there = {
        str(path.relative_to(queue)): None if path.is_dir() else path.read_bytes()
        for path in queue.glob("**/*")
    }
    assert set(image) == set(there)
    beating = {"control.meta", "stats.meta", "readers/one.meta", "readers/two.meta"}
    assert [name for name in set(there) - beating if image[name] != there[name]] == []


def test_an_acknowledged_record_that_is_missing_is_found_out(recordings, tmp):
    recording = recordings["plain"]
    crash = Crash(recording, next(time for time, note in recording.notes if note.get("acked")))
    image = crash.image(newest(crash.doubts))
    image["000000000.q"] = image["000000000.q"][:64].ljust(len(image["000000000.q"]), b"\0")
    with pytest.raises(AssertionError, match=r"used again|acknowledged and lost"):
        Case(image, crash.view.begun, crash.kept, sparse=False).judge(tmp / "q")


# Every call that syncs a file or changes a directory: one that the recorder does not know is traced
# here and not there.
TRACED = (
    "sync,fsync,fdatasync,syncfs,msync,sync_file_range,"
    "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,"
    "open,openat,openat2,creat,truncate,ftruncate,fallocate,copy_file_range,io_uring_enter"
)


@pytest.mark.parametrize("run", ["plain", "retained, made when needed"])
def test_the_recorder_sees_every_call_that_the_kernel_sees(tmp, run):
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    queue, log, trace = tmp / "q", tmp / "log", tmp / "trace"
    strace = ["strace", "-f", "-qq", "-y", "-e", f"trace={TRACED}", "-o", str(trace)]
    record(queue, log, "recorded_runs", run, 1, 0, before=strace)
    traced = collections.Counter(
        re.sub(r"(at2?)?$", "", name)
        for name, arguments in finished_calls(trace.read_text().splitlines())
        if str(queue) in arguments and (not name.startswith("open") or "O_CREAT" in arguments)
    )
    assert traced == Recording(log).calls
    assert traced["fdatasync"] > 5
    assert traced["rename"] > 3


def finished_calls(lines):
    """``(name, arguments)`` of those that succeeded; strace splits what others cut short."""
    begun = {}
    for line in lines:
        thread, text = line.split(None, 1)
        if text.endswith("<unfinished ...>"):
            begun[thread] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            text = begun.pop(thread) + text.split("resumed>", 1)[1]
        if found := re.match(r"(\w+)\((.*)\)\s+= (?!-1)", text):
            yield found[1], found[2]
