"""Parts of a job as Spark tasks: each is done once, marked when done, and fails alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tapewire.archive.job_marks import JobMarks
from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    CorruptSource,
    SegmentMissing,
    TapewireError,
)
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tapewire.spark.jobs.progress import Progress, TaskCounts

__all__ = ["JobPart", "PartResult", "run_parts", "skip_done"]

MAX_TASKS = 4096  # of one Spark job: each task costs milliseconds and memory in the driver
DAMAGE = (CorruptMetadata, CorruptRecord, CorruptSource, SegmentMissing)


@dataclass(frozen=True)
class JobPart:
    """The unit of work of a job, marked when it is done.

    Attributes:
        name: Like "binance/BTCUSDT/2024-07-01": names valid as directories, separated by slashes.
        inputs: For each input its path and its state (last sequence number, size). If a state
            changes, the part is done again.
        work: What the function needs; it is sent to a worker.
    """

    name: str
    inputs: tuple[Mapping[str, Any], ...] = ()
    work: Any = None


@dataclass
class PartResult:
    """The result of a part.

    Attributes:
        rows: Rows written.
        bytes: Bytes written.
        findings: What needs attention.
        counts: Counts specific to the job; the summary adds them up.
        outputs: Paths written, relative to the target.
        notes: What the next run of the job needs to know about this part; plain values.
    """

    rows: int = 0
    bytes: int = 0
    findings: list[JobFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a job mark."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> PartResult:
        """The result in a job mark.

        Raises:
            CorruptMetadata: The value is not from `to_dict`.
        """
        try:
            return cls(
                rows=int(value["rows"]),
                bytes=int(value["bytes"]),
                findings=[JobFinding(**finding) for finding in value["findings"]],
                counts={str(name): int(number) for name, number in value["counts"].items()},
                outputs=[str(output) for output in value["outputs"]],
                notes=dict(value["notes"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptMetadata(f"invalid result of a part: {error!r}") from None


def skip_done(
    done: JobMarks,
    parts: Iterable[JobPart],
    options: Mapping[str, Any],
    summary: Summary,
    *,
    remake: bool = True,
) -> tuple[list[JobPart], dict[str, PartResult]]:
    """The parts left to do, and the results of the others, which the summary counts as skipped.

    With `remake`, a part is also left to do if one of its outputs has been removed.
    """
    left = []
    results: dict[str, PartResult] = {}
    for part in parts:
        mark = done.current(part.name, part.inputs, options)
        if mark is None:
            left.append(part)
            continue
        try:
            before = PartResult.from_dict(mark.result)
        except CorruptMetadata:
            left.append(part)
            continue
        if remake and not all((done.target / output).exists() for output in before.outputs):
            left.append(part)
            continue
        summary.skipped += 1
        summary.findings += before.findings
        summary.count(**before.counts)
        results[part.name] = before
    return left, results


def run_parts(
    spark: SparkSession,
    job: str,
    target: str | os.PathLike[str],
    parts: Sequence[JobPart],
    function: Callable[[JobPart], PartResult],
    *,
    options: Mapping[str, Any],
    summary: Summary,
    progress: Progress,
    remake: bool = True,
) -> dict[str, PartResult]:
    """Do the parts that are not done yet, one task each; the task marks its part as done.

    If the function raises a Tapewire error or an OSError, the part is reported as failed, gets no
    mark, and the other parts continue. Any other exception is a bug and ends the job.
    Memory: the driver holds the names and results of the parts, a task what its function needs.

    Args:
        spark: The session.
        job: The name of the job.
        target: The directory of the marks; every worker sees it.
        parts: All parts of the job, done or not.
        options: The options of the job that affect the result of a part; plain values.
        summary: Receives the results.
        progress: Receives parts and rows.
        remake: Whether a part is done again if one of its outputs has been removed.
        function: Called with a part, in a task. Spark may call it more than once for a part, even
            concurrently, and a worker of a killed run may still be running it: it must write to a
            staging directory and rename, or lock.

    Returns:
        The results of this and earlier runs by the names of the parts, except failed parts.
    """
    done = JobMarks(os.path.abspath(os.fspath(target)), job)
    left, results = skip_done(done, parts, options, summary, remake=remake)
    progress.expect(parts=len(left))
    if not left:
        return results
    counts = progress.task_counts(spark)
    task = _PartTask(done, left, function, dict(options), counts)
    ids = spark.range(0, len(left), 1, min(len(left), MAX_TASKS))
    for row in ids.mapInArrow(task, "part BIGINT, result STRING").collect():
        _add(summary, results, left[row["part"]], json.loads(row["result"]))
    return results


class _PartTask:
    """Does the parts of one partition, one after the other; in a task."""

    def __init__(
        self,
        done: JobMarks,
        parts: Sequence[JobPart],
        function: Callable[[JobPart], PartResult],
        options: Mapping[str, Any],
        counts: TaskCounts,
    ) -> None:
        self._done, self._parts, self._function = done, parts, function
        self._options, self._counts = options, counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema([("part", pa.int64()), ("result", pa.string())])
        for batch in batches:
            for index in batch.column(0).to_pylist():
                text = json.dumps(self._do(self._parts[index]))
                columns = [pa.array([index]), pa.array([text])]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _do(self, part: JobPart) -> dict[str, Any]:
        try:
            result = self._function(part)
        except (TapewireError, OSError) as error:
            kind = "damage" if isinstance(error, DAMAGE) else "failed"
            where = getattr(error, "path", None) or getattr(error, "filename", None) or ""
            what = error.message if isinstance(error, TapewireError) else str(error)
            hint = getattr(error, "hint", None)
            finding = JobFinding(part.name, f"{what}; {hint}" if hint else what, str(where), kind)
            return {"failed": True, "finding": dataclasses.asdict(finding)}
        self._done.write(part.name, part.inputs, self._options, result.to_dict())
        self._counts.add(rows=result.rows, parts=1)
        return {"failed": False, "result": result.to_dict()}


def _add(
    summary: Summary, results: dict[str, PartResult], part: JobPart, outcome: Mapping[str, Any]
) -> None:
    if outcome["failed"]:
        summary.failed += 1
        summary.findings.append(JobFinding(**outcome["finding"]))
        return
    result = results[part.name] = PartResult.from_dict(outcome["result"])
    summary.done += 1
    summary.rows += result.rows
    summary.bytes += result.bytes
    summary.findings += result.findings
    summary.count(**result.counts)
