"""The sink: ``df.write.format("tapewire")`` and ``df.writeStream.format("tapewire")``.

Spark makes a writer on the driver, sends it to every task, and gives what the tasks return to a
writer on the driver again, each time in another process. What must outlive one lies in the archive:
docs/reference/spark-sink.md tells what happens in which order.
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

__all__ = ["BatchWriter", "Staged", "StreamWriter", "stream_writer", "writer"]


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of ``df.write``."""
    return BatchWriter(options, schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of ``df.writeStream``."""
    return StreamWriter(options, schema, overwrite)


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged; the driver gets one of each task that succeeded.

    Attributes:
        job: Whose folder has the runs.
        partition: Of the task: rows without numbers are in the order of the partitions.
        runs: At most one a log.
        rows: That the task was given.
        digest: Of these rows; zeros when the batch is not to be recognised.
    """

    job: str
    partition: int
    runs: list[StagedRun]
    rows: int
    digest: tuple[int, int]


class _Sink:
    """What both writers do: made on the driver, it stages in tasks, and commits on the driver."""

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
        """Finish what others left, and make the folder of a new job; its name."""
        archive = Archive(self.options.path)
        archive.check_place()
        # A query's batches follow each other: one that begins has no other one beside it. Batch
        # writes of one name may run side by side, each with a batch of its own.
        job = archive.jobs.create(self.options.writer if self.streaming else None)
        archive.recover(job)
        if self.options.instruments is not None:
            _put_instruments(self.options.instruments, archive)
        return job

    def stage(self, job: str, batches: Iterator[Any]) -> Staged:
        """In a task: rows into queues of their own."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        attempt = 0 if context is None else context.taskAttemptId()
        folder = Archive(self.options.path).jobs.folder(job)
        with StagingTask(
            folder,
            f"task-{partition}-{attempt}",
            FrameRows(self.plan, partition).split,
            self.plan.staging(self.options.segment_bytes),
        ) as stage:
            for batch in batches:
                stage.add(batch)
            runs = stage.finish()
        return Staged(job, partition, runs, stage.records, (stage.digest.one, stage.digest.two))

    def commit(self, job: str, batch: str | None, messages: Sequence[Staged | None]) -> None:
        """On the driver: all of it into the archive, once."""
        staged = sorted((one for one in messages if one is not None), key=_partition)
        digest = Digest()
        for one in staged:
            digest.add(Digest(*one.digest))
        Archive(self.options.path).commit(
            job,
            [run for one in staged for run in one.runs],
            rows=sum(one.rows for one in staged),
            digest=str(digest) if self.keyed else "",
            writer=self.options.writer,
            batch=batch,
            overwrite=self.overwrite,
            segment_bytes=self.options.segment_bytes,
            sparse=self.plan.has_seq,
            drop=self.plan.drop,
        )


def _partition(staged: Staged) -> int:
    return staged.partition


def _put_instruments(where: str, archive: Archive) -> None:
    path = os.path.abspath(where)
    instruments = Instruments.load(os.path.dirname(path) if os.path.isfile(path) else path)
    if instruments.path is None:
        raise InvalidOption(
            f"there is no instruments.json here or above: instruments={where!r:.80}", path=path
        )
    instruments.save(archive.root)


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("tapewire")``: modes append and overwrite.

    Raises:
        InvalidOption: An option or a column cannot be.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = _Sink(options, schema, overwrite=overwrite, streaming=False)
        self._job = self._sink.begin()

    def write(self, iterator: Iterator[Any]) -> Staged:
        """In a task: stage its rows."""
        return self._sink.stage(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publish what the tasks staged."""
        self._sink.commit(self._job, self._sink.options.batch, _ours(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: take away what the tasks staged."""
        Archive(self._sink.options.path).abort(self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("tapewire")``: each micro-batch once, whatever is killed.

    Spark makes one for the tasks of each micro-batch, and another one to commit it: the job is in
    what the tasks return.

    Raises:
        InvalidOption: An option or a column cannot be, or the output mode is complete.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "a log is appended to: output mode complete would replace it with each batch",
                hint='outputMode("append")',
            )
        self._sink = _Sink(options, schema, overwrite=False, streaming=True)
        self._job: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks: this is when a job begins."""
        if self._job is None:
            self._job = self._sink.begin()
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> Staged:
        """In a task: stage its rows."""
        assert self._job is not None
        return self._sink.stage(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: publish what the tasks staged."""
        staged = _ours(messages)
        job = next((one.job for one in staged if one is not None), None)
        if job is not None:
            self._sink.commit(job, str(batchId), staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: take away what the tasks staged."""
        for job in {one.job for one in _ours(messages) if one is not None}:
            Archive(self._sink.options.path).abort(job)


def _ours(messages: Sequence[WriterCommitMessage | None]) -> list[Staged | None]:
    return [one for one in messages if one is None or isinstance(one, Staged)]
