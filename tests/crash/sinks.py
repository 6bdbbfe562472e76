"""Writes of the Spark sink, without Spark, in separate processes, to be killed."""

from pathlib import Path

from tapewire.archive.transaction import publish
from tests.crash.steps import Steps
from tests.support.records import stored
from tests.support.staged import LOG, Job, rows


def job_of(root, batch, *, overwrite=False):
    """A batch of two tasks: one log that continues, and one that is new with each batch."""
    first = 7 if overwrite else batch * 100  # so that a replaced log differs
    job = Job(root, batch=batch, overwrite=overwrite, segment_bytes="8192")
    job.task(rows(range(first, first + 60), payload=b"%060d"))
    job.task(
        rows(range(first + 60, first + 100), payload=b"%060d"),
        rows([1], symbol=f"NEW-{batch}"),
    )
    return job


def has_rows_of(log, batch, overwrite=False):
    """Whether the continued log of `job_of` has all rows of this batch."""
    numbers = [seq for seq, *_ in stored(log)] if log.is_dir() else []
    return numbers == list(range(7, 107) if overwrite else range(batch * 100 + 100))


def commit_until(line, step, root, batch, overwrite=False, published=False):
    """Commit a batch, and kill this process at the `step`-th step that changes the disk.

    Steps are before and after each sync of a file or directory, each rename, and each append;
    with `published`, only those after the first log has the rows of this batch.
    """
    job = job_of(root, batch, overwrite=overwrite)
    log = Path(root) / LOG

    def begun():
        return not published or has_rows_of(log, batch, overwrite)

    steps = Steps(step, (publish, "append"), (publish, "_exchange"), begun=begun)
    job.commit()
    line.say("steps", steps.count)
