"""The sink: ``df.write.format("tapewire")`` and ``df.writeStream.format("tapewire")``.

Spark creates a writer on the driver, sends it to every task, and passes what the tasks return to a
writer on the driver, each time in a different process. What must outlive a process is stored in the
archive; docs/reference/spark-sink.md describes the steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tapewire.archive.transaction import Archive, Digest, StagedRun, StagingTask
from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import Instruments
from tapewire.spark.sink.messages import layout_of
from tapewire.spark.sink.options import WriteOptions
from tapewire.spark.sink.rows import FrameRows, plan_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StreamWriter", "TaskCommit"]


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task has staged; the driver gets one from each task that succeeded.

    Attributes:
        job: Name of the job, whose directory has the runs.
        partition: Number of Spark's partition, which orders rows without sequence numbers.
        runs: The staged runs, at most one per log.
        rows: Number of rows of the task.
        digest: Digest of these rows; zeros if the batch has no name.
    """

    job: str
    partition: int
    runs: list[StagedRun]
    rows: int
    digest: tuple[int, int]


class _Sink:
    """The common part of both writers: stages rows in tasks and commits them on the driver."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool
    ) -> None:
        self.options = WriteOptions.parse(options, streaming=streaming)
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        layout = layout_of(self.options.type, self.options.module) if self.options.type else None
        self.keyed = self.options.writer is not None
        self.plan = plan_rows(self.options, types, layout, keyed=self.keyed)
        self.overwrite = overwrite
        self.streaming = streaming

    def begin(self) -> str:
        """Create the directory of a new job, and finish interrupted ones; return the job's name."""
        archive = Archive(self.options.path)
        archive.check_place()
        # Batches of a query run one after the other, so a new job may remove older ones of its
        # writer. Batch writes with the same writer may run in parallel: their jobs name no writer.
        job = archive.jobs.create(self.options.writer if self.streaming else None)
        archive.recover(job)
        if self.options.instruments is not None:
            _put_instruments(self.options.instruments, archive)
        return job

    def stage(self, job: str, batches: Iterator[Any]) -> TaskCommit:
        """Stage the rows of a task in queues of its own; runs in the task."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        attempt = 0 if context is None else context.taskAttemptId()
        with StagingTask(
            Archive(self.options.path).jobs.directory(job),
            f"task-{partition}-{attempt}",
            FrameRows(self.plan, partition).split,
            self.plan.staging(self.options.segment_bytes),
        ) as stage:
            for batch in batches:
                stage.add(batch)
            runs = stage.finish()
        digest = (stage.digest.one, stage.digest.two)
        return TaskCommit(job, partition, runs, stage.records, digest)

    def commit(self, job: str, batch: str | None, messages: Sequence[TaskCommit | None]) -> None:
        """Publish the staged rows in the archive, exactly once; runs on the driver."""
        commits = sorted((one for one in messages if one is not None), key=_partition)
        digest = Digest()
        for one in commits:
            digest.add(Digest(*one.digest))
        Archive(self.options.path).commit(
            job,
            [run for one in commits for run in one.runs],
            rows=sum(one.rows for one in commits),
            digest=str(digest) if self.keyed else "",
            writer=self.options.writer,
            batch=batch,
            overwrite=self.overwrite,
            segment_bytes=self.options.segment_bytes,
            sparse=self.plan.has_seq,
            drop=self.plan.drop,
        )


def _partition(commit: TaskCommit) -> int:
    return commit.partition


def _put_instruments(where: str, archive: Archive) -> None:
    path = os.path.abspath(where)
    instruments = Instruments.load(os.path.dirname(path) if os.path.isfile(path) else path)
    if instruments.path is None:
        raise InvalidOption(
            f"no instruments.json here or in a parent directory: instruments={where!r:.80}",
            path=path,
        )
    instruments.save(archive.root)


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("tapewire")``: modes append and overwrite.

    Raises:
        InvalidOption: An option or a column is invalid.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = _Sink(options, schema, overwrite=overwrite, streaming=False)
        self._job = self._sink.begin()

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """Stage the rows of a task; runs in the task."""
        return self._sink.stage(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged; runs on the driver."""
        self._sink.commit(self._job, self._sink.options.batch, _task_commits(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks staged; runs on the driver."""
        Archive(self._sink.options.path).abort(self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("tapewire")``: each micro-batch once, whichever process is killed.

    Spark creates one writer for the tasks of each micro-batch and another to commit it, which gets
    the name of the job from what the tasks return.

    Raises:
        InvalidOption: An option or a column is invalid, or the output mode is complete.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "output mode complete is not supported: it would replace the logs with each batch",
                hint='use outputMode("append")',
            )
        self._sink = _Sink(options, schema, overwrite=False, streaming=True)
        self._job: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin a job when Spark pickles the writer for the tasks."""
        if self._job is None:
            self._job = self._sink.begin()
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """Stage the rows of a task; runs in the task."""
        assert self._job is not None
        return self._sink.stage(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks staged; runs on the driver."""
        commits = _task_commits(messages)
        job = next((one.job for one in commits if one is not None), None)
        if job is not None:
            self._sink.commit(job, str(batchId), commits)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks staged; runs on the driver."""
        for job in {one.job for one in _task_commits(messages) if one is not None}:
            Archive(self._sink.options.path).abort(job)


def _task_commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit | None]:
    return [one for one in messages if one is None or isinstance(one, TaskCommit)]
