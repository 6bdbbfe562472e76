"""Writes of the Spark sink, without Spark, in processes of their own, to be killed."""

from tapewire.spark.sink import publish
from tests.crash.steps import Steps
from tests.support.staged import Job, rows


def job_of(root, batch, *, overwrite=False):
    """A batch of two tasks: a log that goes on, and one that is new with each batch."""
    first = 7 if overwrite else batch * 100  # what replaces a log is seen to be another
    job = Job(root, batch=batch, overwrite=overwrite, segment_bytes="8192")
    job.task(rows(range(first, first + 60), payload=b"%060d"))
    job.task(
        rows(range(first + 60, first + 100), payload=b"%060d"),
        rows([1], symbol=f"NEW-{batch}"),
    )
    return job


def commit_until(line, step, root, batch, overwrite=False):
    """Commits a batch, and kills itself at the `step`-th step that leaves a trace on disk.

    Steps are before and after each sync of a file or folder, each rename, and each append.
    """
    job = job_of(root, batch, overwrite=overwrite)
    steps = Steps(step, (publish, "append"), (publish, "_exchange"))
    job.commit()
    line.say("steps", steps.count)
