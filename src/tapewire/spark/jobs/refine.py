"""`refine`: raw multiplexed logs into clean logs, one for each symbol, stream and day.

The job plans units, distributes the functions of `tapewire.refine` and commits their results: every
slice is surveyed, then split and judged in one shuffle by clean log and saved by the sink, and each
clean log is finished by a task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.archive.transaction import Archive
from tapewire.errors import TapewireError
from tapewire.queue.status import status
from tapewire.refine import judge
from tapewire.refine.finish import finish_log, gaps_of_log
from tapewire.refine.ledger import JOB, DoneUnit, PendingUnit, RefineLedger
from tapewire.refine.options import RefineOptions
from tapewire.refine.owners import InstrumentKeys, instruments_beside
from tapewire.refine.raw_units import RawUnit, raw_logs, units_of
from tapewire.refine.split import SPLIT_SCHEMA, RawSlice, Split
from tapewire.refine.survey import (
    RefineFinding,
    SliceSurvey,
    UnitSurvey,
    clean_log_names,
    late_log_names,
    share_clean_logs,
    survey_slice,
    survey_unit,
)
from tapewire.scan.options import ReadOptions
from tapewire.spark.jobs.parts import JobPart, PartResult, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary
from tapewire.spark.reading.live_queues import refuse_live
from tapewire.spark.sessions.session import context_of, parallelism_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tapewire.scan.slices import Slice

__all__ = ["refine"]

LATENESS = 1.0
SNAPSHOT_SECONDS = 60.0
MAX_KEPT = 20_000  # gaps, and findings, that the ledger keeps for a unit
BATCH_BYTES = 8 << 30  # of raw logs that go through one shuffle
UNKNOWN_CORES = 8  # assumed where Spark Connect does not report them


def refine(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    late: str = "keep",
    lateness: float = LATENESS,
    snapshot_seconds: float = SNAPSHOT_SECONDS,
    on_damage: str = "raise",
    shared: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Split raw logs into clean ones; sequence numbers, times and bytes of records are unchanged.

    Each clean log is sparse and has a gap ledger, and a book has snapshots. A record that several
    raw logs hold is written once. Another run adds what the raw logs have received since; with
    other options it builds the clean logs from scratch.

    Args:
        spark: The session. Its workers see source and target by the same paths.
        source: An archive with raw logs, a bus, a log, or a glob of those.
        target: The archive for the clean logs; may be that of the raw ones.
        late: What happens to a late record: "keep" it in its place, "drop" it, or "separate" it
            into a stream of its own, such as `book_late`. `counts` has the number of late records.
        lateness: A record is late if its time is more than this many seconds before the highest
            time so far in its raw log.
        snapshot_seconds: Recorded time between two snapshots of a book, seconds.
        on_damage: "raise": a damaged raw log fails. "skip": damage is skipped and reported.
        shared: Every worker sees the files of a live queue.
        progress: Shows the progress.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.refine(spark, "raw/", "clean/", late="separate")  # doctest: +SKIP
    """
    started = time.monotonic()
    options = RefineOptions(late, lateness, snapshot_seconds, on_damage)
    place = os.path.abspath(target)
    logs = raw_logs(source)
    refuse_live(logs, ReadOptions(shared=shared), _master(spark))
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    progress = progress if progress is not None else Progress(JOB, quiet=True)
    run = _Run(spark, place, options, summary, progress, RefineLedger(place))
    with AtomicDirectories(place, JOB).exclusive():
        # A batch that a killed run had decided on is published now, not by this run's first write:
        # its logs must exist when this run looks for logs to replace.
        Archive(place).recover()
        run.do(units_of(logs))
    summary.seconds = time.monotonic() - started
    return summary


@dataclass
class _Run:
    """One run of the job."""

    spark: SparkSession
    target: str
    options: RefineOptions
    summary: Summary
    progress: Progress
    ledger: RefineLedger

    def do(self, units: Sequence[RawUnit]) -> None:
        """Refine what is new in these units, then finish their clean logs."""
        left: list[RawUnit] = []
        for unit in units:
            try:
                if self._plan(unit):
                    left.append(unit)
            except (TapewireError, OSError) as error:
                self._fail(unit, str(error))
        for group in _groups(left):
            self._refine(group)
        self._finish(units)

    def _fail(self, unit: RawUnit, why: str, where: str = "") -> None:
        self.summary.failed += 1
        self.summary.findings.append(JobFinding(unit.name, why, where, "failed"))

    # ---- 1. what is new -------------------------------------------------------------------------

    def _plan(self, unit: RawUnit) -> bool:
        """Plan what this run reads of a unit; whether there is anything."""
        read, options = self.options.reading, self.options.to_dict()
        wanted = _parallelism(self.spark) * 2
        unit.plan(read, wanted)
        entry = self.ledger.entry(unit.name)
        done, pending = entry.done, entry.pending
        if pending is not None and (done is None or pending.replace):
            unit.repeat(pending, options)
            return True
        if done is None:
            return True
        removed = [name for name in done.logs if not self._has(name)]
        if removed and not unit.has_lost_records(done):
            # Read from the start: existing logs skip the records that they have.
            unit.repeat(done, options)
            return True
        if removed:
            self._report_removed(unit, removed)
        if done.inputs == unit.inputs and done.options == options:
            return False
        unit.continue_after(done, options, read, wanted)
        return any(unit.slices)

    def _report_removed(self, unit: RawUnit, removed: Sequence[str]) -> None:
        """Report, once, clean logs that cannot be written again: fewer days are kept of them."""
        for name in removed:
            what = (
                "the clean log was removed; it is not written again: raw records of it are missing"
            )
            self.summary.findings.append(JobFinding(unit.name, what, name))
        self.ledger.drop_logs(unit.name, removed)

    def _has(self, name: str) -> bool:
        """Whether a clean log of this name exists."""
        return _inode(self._path(name)) is not None

    def _path(self, name: str) -> str:
        return os.path.join(self.target, "v1", name)

    def _refine(self, units: Sequence[RawUnit]) -> None:
        """Survey units, then write their records into clean logs."""
        files = instruments_beside([log.path for unit in units for log in unit.logs])
        for file in files:
            file.save(self.target)
        keys = InstrumentKeys.of_files(files)
        surveyed = self._survey(units, keys)
        for replace in (False, True):
            group = [each for each in surveyed if each.unit.replace is replace]
            if group:
                self._write(group, keys, replace)

    # ---- 2. survey ------------------------------------------------------------------------------

    def _survey(self, units: Sequence[RawUnit], keys: InstrumentKeys) -> list[UnitSurvey]:
        slices = [part for unit in units for parts in unit.slices for part in parts]
        surveys = iter(_survey_slices(self.spark, slices, keys, self.options.reading))
        surveyed: list[UnitSurvey] = []
        for unit in units:
            seen = [[next(surveys) for _ in parts] for parts in unit.slices]
            failed = next((s for each in seen for s in each if s.error is not None), None)
            if failed is not None:
                self._fail(unit, str(failed.error), failed.path or "")
                continue
            sources = sum(len(each.unit.logs) for each in surveyed)
            surveyed.append(survey_unit(unit, seen, sources))
        return surveyed

    # ---- 3. split, judge, save ------------------------------------------------------------------

    def _write(self, group: Sequence[UnitSurvey], keys: InstrumentKeys, replace: bool) -> None:
        """Write the records of units into their clean logs, and record that in the ledger."""
        names = clean_log_names(group, self.options)
        expected = sum(sum(each.records.values()) for each in group)
        self.progress.expect(rows=expected)
        replaced = self._begin(group)
        counts = dict.fromkeys(("kept", "duplicates", "conflicts", "late"), 0)
        if expected:
            # Records that a killed run has published are not written again.
            ends = [0 if replace else self._end_of(name) for name in names]
            counts = _save(self._judged(group, keys, names, ends), self.target, replace)
        if replace:
            self._remove_stale(replaced)
        self.summary.rows += counts.pop("kept")
        if self.options.late == "drop":
            counts["late_dropped"] = counts.pop("late")
        # Spark counts all units of the group together. The counts are recorded with the first unit
        # that has several logs, since only there can be duplicates, or else with the first unit.
        owner = next((each for each in group if len(each.unit.logs) > 1), group[0])
        if counts["conflicts"]:
            what = f"sequence numbers of different records in raw logs: {counts['conflicts']:,}; "
            what += "the records of the first log were kept"
            owner.findings.append(RefineFinding(what, "", "damage"))
        for each in group:
            self._complete(each, counts if each is owner else {})

    def _begin(self, group: Sequence[UnitSurvey]) -> dict[str, int]:
        """Record what is about to change; the logs that are to be replaced, with their inodes."""
        replaced: dict[str, int] = {}
        for each in group:
            unit = each.unit
            logs = clean_log_names([each], self.options)
            run = PendingUnit(unit.inputs, self.options.to_dict(), logs, unit.replace)
            self.ledger.begin(unit.name, run, again=unit.again)
            if unit.replace:
                for name in self.ledger.entry(unit.name).logs:
                    inode = _inode(self._path(name))
                    if inode is not None:
                        replaced[name] = inode
        return replaced

    def _remove_stale(self, replaced: Mapping[str, int]) -> None:
        """Remove logs that were to be replaced and did not get any record."""
        directories = AtomicDirectories(self.target, JOB)
        for name, inode in replaced.items():
            if _inode(self._path(name)) == inode:
                with directories.new() as removed:
                    os.rename(self._path(name), removed / "stale")

    def _end_of(self, name: str) -> int:
        """The sequence number after the last record of a clean log; 0 if there is none."""
        if not self._has(name):
            return 0
        last = status(self._path(name)).last_seq
        return 0 if last is None else min(last + 1, 2**63 - 1)  # a BIGINT

    def _judged(
        self,
        group: Sequence[UnitSurvey],
        keys: InstrumentKeys,
        names: Sequence[str],
        ends: Sequence[int],
    ) -> DataFrame:
        """The records of units, each with a verdict."""
        from pyspark.sql.pandas.types import from_arrow_schema

        options = self.options
        slices = [raw for each in group for raw in each.slices]
        count_rows = self.progress.task_counts(self.spark).add
        split = Split(keys, {name: i for i, name in enumerate(names)}, options, count_rows)
        shuffled = from_arrow_schema(SPLIT_SCHEMA)
        frame = self.spark.range(0, len(slices), 1, len(slices)).mapInArrow(
            _SplitTask(split, slices), shuffled
        )
        partitions = min(len(names), max(2 * _parallelism(self.spark), 1), 4096)
        frame = frame.repartition(partitions, "log")
        if share_clean_logs(group):
            ordered = frame.sortWithinPartitions(*judge.BY_VENUE_EVENT)
            frame = ordered.mapInArrow(judge.VenueJudge(), shuffled)
        ordered = frame.sortWithinPartitions(*judge.BY_SEQUENCE)
        task = judge.Judge(names, options.late == "drop", ends)
        return ordered.mapInArrow(task, from_arrow_schema(judge.JUDGED_SCHEMA))

    def _complete(self, each: UnitSurvey, counts: Mapping[str, int]) -> None:
        """Record that the records of a unit are in place."""
        unit = each.unit
        before = self.ledger.entry(unit.name).done
        options = self.options.to_dict()
        old = before if before is not None and not unit.replace else DoneUnit([], options)
        # The raw log's own gap ledger is read in full by every run.
        gaps, too_many = _merged(old.gaps, each.gaps)
        if too_many:
            each.findings.append(RefineFinding(f"too many gaps, not reported: {too_many:,}"))
        findings, _ = _merged(old.findings, map(asdict, each.findings))
        logs = dict(old.logs)
        for name, count in each.records.items():
            logs[name] = logs.get(name, 0) + count
        logs |= dict.fromkeys(late_log_names(each.records, self.options), 0)
        # A log all of whose records were late or duplicates does not exist, and is not lost later.
        logs = {name: count for name, count in logs.items() if self._has(name)}
        totals = dict(old.counts)
        for name, number in {**each.counts, **counts}.items():
            totals[name] = totals.get(name, 0) + number
        self.ledger.complete(
            unit.name,
            DoneUnit(unit.inputs, options, logs, gaps, totals, findings, each.clocks),
        )

    # ---- 4. finish ------------------------------------------------------------------------------

    def _finish(self, units: Sequence[RawUnit]) -> None:
        parts = []
        for unit in units:
            done = self.ledger.entry(unit.name).done
            if done is None:
                continue
            self.summary.findings += [JobFinding(unit.name, **found) for found in done.findings]
            self.summary.count(**done.counts)
            raw = [log.path for log in unit.logs]
            for name in sorted(done.logs):
                if not self._has(name):
                    continue  # removed since
                gaps = gaps_of_log(done.gaps, name)
                inputs = ({"log": name, "records": done.logs[name], "gaps": len(gaps)},)
                parts.append(JobPart(name, inputs, {"gaps": gaps, "raw": raw}))
        run_parts(
            self.spark,
            JOB,
            self.target,
            parts,
            partial(_finish_part, self.target, self.options.snapshot_seconds),
            options=self.options.to_dict(),
            summary=self.summary,
            progress=self.progress,
        )


class _SplitTask:
    """Splits the slices at the given indexes; in a task."""

    def __init__(self, split: Split, slices: Sequence[RawSlice]) -> None:
        self._split, self._slices = split, slices

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for ids in inputs:
            for index in ids.column(0).to_pylist():
                yield from self._split.rows(self._slices[index])


class _SurveyTask:
    """Surveys the slices at the given indexes; in a task."""

    def __init__(self, slices: list[Slice], keys: InstrumentKeys, options: ReadOptions) -> None:
        self._slices, self._keys, self._options = slices, keys, options

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for ids in inputs:
            for index in ids.column(0).to_pylist():
                seen = survey_slice(self._slices[index], self._keys, self._options)
                yield pa.record_batch({"slice": [index], "result": [json.dumps(asdict(seen))]})


def _survey_slices(
    spark: SparkSession, slices: Sequence[Slice], keys: InstrumentKeys, options: ReadOptions
) -> list[SliceSurvey]:
    """Survey all slices, one task each; the results in their order."""
    if not slices:
        return []
    task = _SurveyTask(list(slices), keys, options)
    ids = spark.range(0, len(slices), 1, len(slices))
    rows = ids.mapInArrow(task, "slice BIGINT, result STRING").collect()
    found = {row["slice"]: SliceSurvey(**json.loads(row["result"])) for row in rows}
    return [found[index] for index in range(len(slices))]


def _finish_part(target: str, snapshot_seconds: float, part: JobPart) -> PartResult:
    """Finish a clean log; in a task."""
    work: dict[str, Any] = part.work
    finished = finish_log(
        target,
        part.name,
        gaps=work["gaps"],
        raw=work["raw"],
        snapshot_seconds=snapshot_seconds,
    )
    counts = {"gaps": finished.gaps}
    if finished.snapshots is not None:
        counts = {"snapshots": finished.snapshots, **counts}
    return PartResult(
        bytes=finished.bytes,
        findings=[JobFinding(part.name, **asdict(found)) for found in finished.findings],
        counts=counts,
        outputs=[finished.path],
    )


def _merged(
    old: Sequence[dict[str, Any]], new: Iterable[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """Both without duplicates, up to `MAX_KEPT`; and how many are left out."""
    found = {tuple(sorted(each.items())): each for each in (*old, *new)}
    return list(found.values())[:MAX_KEPT], max(len(found) - MAX_KEPT, 0)


def _inode(log: str) -> int | None:
    """Distinguishes a log from another one in its place; None if there is none."""
    try:
        return os.stat(os.path.join(log, "control.meta")).st_ino
    except FileNotFoundError:
        return None


def _save(frame: DataFrame, target: str, replace: bool) -> dict[str, int]:
    """Write the kept rows by the sink; the number of rows of each verdict."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    def counted(verdict: int) -> Any:
        return f.coalesce(f.sum(f.when(f.col("verdict") == verdict, 1).otherwise(0)), f.lit(0))

    seen = Observation()
    late = f.coalesce(f.sum(f.when(f.col("late"), 1).otherwise(0)), f.lit(0))
    frame = frame.observe(
        seen,
        counted(judge.KEPT).alias("kept"),
        counted(judge.DUPLICATE).alias("duplicates"),
        counted(judge.CONFLICT).alias("conflicts"),
        late.alias("late"),
    )
    kept = frame.where(f.col("verdict") == judge.KEPT).drop("verdict", "late")
    (
        kept.write.format("tapewire")
        .mode("overwrite" if replace else "append")
        .option("duplicates", "drop")  # by sequence number: records published since `_end_of`
        .save(target)
    )
    return {name: int(number) for name, number in seen.get.items()}


def _groups(units: Sequence[RawUnit]) -> Iterator[list[RawUnit]]:
    """Units that go through one shuffle: for a small one alone it would cost more than its work."""
    group: list[RawUnit] = []
    size = 0
    for unit in units:
        if group and size + unit.bytes > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(unit)
        size += unit.bytes
    if group:
        yield group


def _parallelism(spark: SparkSession) -> int:
    return parallelism_of(spark) or UNKNOWN_CORES


def _master(spark: SparkSession) -> str | None:
    context = context_of(spark)
    return None if context is None else str(context.master)
