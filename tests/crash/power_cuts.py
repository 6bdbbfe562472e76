"""Recorded runs and seeded cases: cut the power, check the image, keep a failing case.

`python -m tests.crash.power_cuts DIRECTORY` checks a kept case again.
"""

import contextlib
import json
import random
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import tapewire as tw
from tests.crash import lost_writes
from tests.crash.aftermath import Aftermath, follow
from tests.crash.recorded_runs import AGAIN, RUNS
from tests.crash.recording import Recording, entries_of, record, recorder

MOST_KEPT = 10


def record_runs(directory, seed):
    """Every run once, then those that begin with the image of a cut of one of these."""

    def first(run):
        queue, log = directory / run, directory / f"{run}.log"
        for part in range(RUNS[run].get("parts", 1)):
            record(queue, log, "recorded_runs", run, seed, part)
        return Recording(log)

    def again(run):
        queue, log = directory / run, directory / f"{run}.log"
        rng = random.Random(f"{run}/{seed}")
        crash = None
        while crash is None or not can_be_opened(queue):
            shutil.rmtree(queue, ignore_errors=True)
            recording = recordings[rng.choice(list(RUNS))]
            crash = lost_writes.Crash(recording, rng.choice(recording.moments[20:]))
            lost_writes.write_image(crash.image(lost_writes.any_state(rng, crash.doubts)), queue)
        record(queue, log, "recorded_runs", run, seed, 0)
        return Recording(log, replace(crash.view, log={}, kept=crash.kept))

    recorder()  # created once, before two threads need it
    with ThreadPoolExecutor(2) as pool:
        recordings = dict(zip(RUNS, pool.map(first, RUNS), strict=True))
        recordings |= dict(zip(AGAIN, pool.map(again, AGAIN), strict=True))
    return recordings


def can_be_opened(queue):
    """Open by a writer and read to the end; if that fails, it is a failing case by itself."""
    trial = queue.with_name(f"{queue.name} on trial")
    shutil.copytree(queue, trial)
    try:
        with tw.open_publisher(trial, preallocate=False), tw.open_log(trial) as reader:
            return not any(isinstance(e, tw.SegmentMissing) for e in follow(reader).events)
    except tw.TapewireError:
        return False
    finally:
        shutil.rmtree(trial)


@contextlib.contextmanager
def threads_kept(directory):
    """Keep a handle open: service threads would end with the last one and start again."""
    with (
        tw.open_publisher(directory / "keeper", segment_bytes=8192, preallocate=False),
        tw.open_log(directory / "keeper"),
    ):
        yield


def run_cases(recordings, seeds, directory):
    """Check the cases with these numbers; report the failed ones and where the first are kept."""
    failed = []
    with threads_kept(directory):
        for seed in seeds:
            name, crash, adversary, image = choose(recordings, seed)
            what = f"case {seed}: {name!r} cut at {crash.time}, {adversary.__name__}"
            case = Case.of(crash, image)
            try:
                case.judge(directory / "case")
            except Exception as error:
                where = case.keep() if len(failed) < MOST_KEPT else "none"
                failed.append(f"{what}: {type(error).__name__}: {error}\n    kept in {where}")
            shutil.rmtree(directory / "case")
    summary = "\n".join([f"{len(failed)} of {len(seeds)} cases failed", *failed[:MOST_KEPT]])
    assert not failed, summary


def choose(recordings, seed):
    """The case of that number."""
    rng = random.Random(seed)
    name = rng.choice(list(recordings))
    crash = lost_writes.Crash(recordings[name], rng.choice(recordings[name].moments))
    adversary = lost_writes.ADVERSARIES[seed % len(lost_writes.ADVERSARIES)]
    return name, crash, adversary, crash.image(adversary(rng, crash.doubts))


class Case:
    """An image and the model's knowledge of it; can be saved and checked elsewhere."""

    def __init__(self, image, begun, kept, sparse):
        self.image = image
        self.begun = begun
        self.kept = kept
        self.sparse = sparse

    @classmethod
    def of(cls, crash, image):
        kept = crash.kept | crash.before_checkpoint(image)
        return cls(image, crash.view.begun, kept, crash.view.options.get("sparse", False))

    def judge(self, directory):
        lost_writes.write_image(self.image, directory)
        Aftermath(directory, self.begun, self.kept, self.sparse).judge()

    def keep(self):
        directory = Path(tempfile.mkdtemp(prefix="tapewire-power-cut-"))
        lost_writes.write_image(self.image, directory / "image")
        model = {
            "begun": [[*entry[:4], entry.payload.hex()] for entry in self.begun],
            "kept": [[*entry[:4], entry.payload.hex()] for entry in self.kept.values()],
            "sparse": self.sparse,
        }
        (directory / "model.json").write_text(json.dumps(model))
        return directory

    @classmethod
    def load(cls, directory):
        image = {
            str(path.relative_to(directory / "image")): None if path.is_dir() else path.read_bytes()
            for path in sorted(directory.glob("image/**/*"))
        }
        model = json.loads((directory / "model.json").read_text())
        kept = {entry.seq: entry for entry in entries_of(model["kept"])}
        return cls(image, set(entries_of(model["begun"])), kept, model["sparse"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        Case.load(Path(sys.argv[1])).judge(Path(scratch) / "queue")
    print("as it should be")
