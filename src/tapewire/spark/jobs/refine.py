"""`refine`: raw multiplexed logs into clean logs, one for each symbol, stream and day."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tapewire.book.gaps import GapLedger
from tapewire.clock import DAY_NS, date_of
from tapewire.config import check_at_least
from tapewire.errors import InvalidOption, TapewireError
from tapewire.protocol.instruments import Instruments
from tapewire.queue.status import status
from tapewire.spark.jobs import refine_rows as rows
from tapewire.spark.jobs.job_marks import JobMark, JobMarks
from tapewire.spark.jobs.parts import JobPart, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.publishing import Workshop
from tapewire.spark.jobs.raw_keys import Keys
from tapewire.spark.jobs.refine_finish import Finish
from tapewire.spark.jobs.refine_rows import Tape
from tapewire.spark.jobs.refine_survey import NO_CLOCK, Survey, survey
from tapewire.spark.jobs.refine_units import RefineUnit, missing_of, raw_logs, units_of
from tapewire.spark.jobs.summary import JobFinding, Summary
from tapewire.spark.reading.logs import refuse_live
from tapewire.spark.reading.options import ReadOptions
from tapewire.spark.sessions.session import context_of, parallelism_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["refine"]

JOB = "refine"
SPLIT = "refine-split"  # marks of units whose records are in their clean logs
BEGUN = "refine-begun"  # marks of units that a killed run may have left anywhere
LATE = ("keep", "drop", "separate")
LATENESS = 1.0
MAX_LATENESS = 1e9  # of the 9.2e9 seconds that a time has room for
SNAPSHOT_SECONDS = 60.0
MAX_TOLD = 20_000  # gaps, and findings, that the mark of a unit has room for
BATCH_BYTES = 8 << 30  # of raw logs that go through one shuffle
UNKNOWN_CORES = 8  # taken to be there where Connect does not tell


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
    """Split raw logs into clean ones, with their numbers, times and bytes as they were.

    Each clean log is sparse, has snapshots of its book and a gap ledger. A record that comes twice,
    by its number or by its venue's, is written once. Run again, it takes in what the raw logs have
    had since; with other options it makes the clean logs anew.

    Args:
        spark: The session. Its workers see source and target by the same paths.
        source: An archive with raw logs, a bus, a log, or a pattern of those.
        target: The archive for the clean logs; may be that of the raw ones.
        late: What becomes of a late record: "keep" it where it is, "drop" it, or "separate": into
            a stream of its own, `book_late`. How many there were is in `counts`.
        lateness: Seconds behind the tape's clock (the highest time so far of the raw log) from
            which on a record is late.
        snapshot_seconds: Of the tape between snapshots of a book.
        on_damage: "raise": a damaged raw log fails. "skip": the damage is passed over and told.
        shared: Every worker sees the files of a live queue.
        progress: Shows how far it is.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.refine(spark, "raw/", "clean/", late="separate")  # doctest: +SKIP
    """
    started = time.monotonic()
    if late not in LATE:
        raise InvalidOption(f"not a policy: late={late!r}", hint=f"one of {', '.join(LATE)}")
    check_at_least("lateness", lateness, 0)
    if lateness > MAX_LATENESS:
        raise InvalidOption(f"lateness must be at most {MAX_LATENESS:g} s: lateness={lateness!r}")
    options = {
        "late": late,
        "lateness": float(lateness),
        "snapshot_seconds": float(snapshot_seconds),
        "on_damage": on_damage,
    }
    finish = Finish(os.path.abspath(target), snapshot_seconds)
    read = ReadOptions.parse({"path": os.fspath(source), "on_damage": on_damage})
    logs = raw_logs(source)
    refuse_live(logs, ReadOptions(shared=shared), _master(spark))
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    run = _Run(
        spark,
        os.path.abspath(target),
        options,
        read,
        finish,
        summary,
        progress if progress is not None else Progress(JOB, quiet=True),
    )
    with Workshop(run.target, JOB).alone():
        run.do(units_of(logs))
    summary.seconds = time.monotonic() - started
    return summary


@dataclass
class _Surveyed:
    """A unit, looked at."""

    unit: RefineUnit
    records: dict[str, int] = field(default_factory=dict)  # by clean log
    gaps: list[dict[str, Any]] = field(default_factory=list)
    findings: list[JobFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    tapes: list[Tape] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)


@dataclass
class _Run:
    """One run of the job."""

    spark: SparkSession
    target: str
    options: dict[str, Any]
    read: ReadOptions
    finish: Finish
    summary: Summary
    progress: Progress

    def __post_init__(self) -> None:
        self.split = JobMarks(self.target, SPLIT)
        self.begun = JobMarks(self.target, BEGUN)
        self.done = JobMarks(self.target, JOB)

    def do(self, units: Sequence[RefineUnit]) -> None:
        left: list[RefineUnit] = []
        for unit in units:
            try:
                if self._is_left(unit):
                    left.append(unit)
            except (TapewireError, OSError) as error:
                self._fail(unit, str(error))
        for group in _groups(left):
            self._refine(group)
        self._finish(units)

    def _is_left(self, unit: RefineUnit) -> bool:
        """Plan what is to be read of a unit; whether there is anything."""
        wanted = _parallelism(self.spark) * 2
        unit.look(self.read, wanted)
        mark = self.split.known(unit.name)
        if mark is None:
            begun = self.begun.known(unit.name)
            if begun is not None:
                unit.begin_again(begun, self.options)
            return True
        lost = [name for name in mark.result["logs"] if not self._has(name)]
        if lost and not unit.has_lost(mark):
            # Read from the start: logs that are there pass over what they have, by number.
            unit.begin_again(mark, self.options)
            self.split.forget(unit.name)
            return True
        if lost:
            self._tell_lost(mark, lost)
        if mark.inputs == unit.state and mark.options == self.options:
            return False
        unit.go_on(mark, self.options, self.read, wanted)
        return any(unit.slices)

    def _has(self, name: str) -> bool:
        """Whether there is a clean log of this name."""
        return _inode(os.path.join(self.target, "v1", name)) is not None

    def _tell_lost(self, mark: JobMark, lost: Sequence[str]) -> None:
        """Clean logs that cannot be made again, told once: somebody keeps fewer days than we do."""
        for name in lost:
            what = "the clean log was removed, and raw records of it are gone: not made again"
            self.summary.findings.append(JobFinding(mark.part, what, name))
        logs = {name: count for name, count in mark.result["logs"].items() if name not in lost}
        result = {**mark.result, "logs": logs}
        self.split.write(mark.part, mark.inputs, mark.options, result)

    def _fail(self, unit: RefineUnit, why: str, where: str = "") -> None:
        self.summary.failed += 1
        self.summary.findings.append(JobFinding(unit.name, why, where, "failed"))

    # ---- records --------------------------------------------------------------------------------

    def _refine(self, units: Sequence[RefineUnit]) -> None:
        """Look at units, then put their records into clean logs and mark them."""
        keys = self._keys(units)
        ready = self._survey(units, keys)
        if not ready:
            return
        for replace in (False, True):
            group = [each for each in ready if each.unit.replace is replace]
            if group:
                self._write(group, keys, replace)

    def _keys(self, units: Sequence[RefineUnit]) -> Keys:
        known = {}
        for log in (log for unit in units for log in unit.logs):
            instruments = Instruments.load(log.path)
            if instruments.path is not None and instruments.path not in known:
                known[instruments.path] = instruments
                instruments.save(self.target)
        found = {(one.venue, one.symbol): one for each in known.values() for one in each}
        return Keys(found.values())

    def _survey(self, units: Sequence[RefineUnit], keys: Keys) -> list[_Surveyed]:
        slices = [part for unit in units for parts in unit.slices for part in parts]
        told = iter(survey(self.spark, slices, keys, self.read) if slices else [])
        ready: list[_Surveyed] = []
        for unit in units:
            seen = [[next(told) for _ in parts] for parts in unit.slices]
            wrong = next((s for each in seen for s in each if s.error is not None), None)
            if wrong is not None:
                self._fail(unit, str(wrong.error), wrong.path or "")
                continue
            ready.append(_taken_in(unit, seen, sum(len(each.unit.logs) for each in ready)))
        return ready

    def _write(self, group: Sequence[_Surveyed], keys: Keys, replace: bool) -> None:
        """Put the records of units into their clean logs, and mark the units."""
        names = sorted({name for each in group for name in each.records})
        if self.options["late"] == "separate":
            names = [*names, *(f"{name}_late" for name in names)]
        expected = sum(sum(each.records.values()) for each in group)
        self.progress.expect(rows=expected)
        stale = self._begin(group, names)
        counts = dict.fromkeys(("kept", "duplicates", "conflicts", "late"), 0)
        if expected:
            # What a killed run has published is not written again.
            ends = [0 if replace else self._end_of(name) for name in names]
            counts = _save(self._frame(group, keys, names, ends), self.target, replace)
        if replace:
            self._remove_stale(stale)
        self.summary.rows += counts.pop("kept")
        if self.options["late"] == "drop":
            counts["late_dropped"] = counts.pop("late")
        # What Spark counted is of all units of the group together: told with the first that has
        # several logs, for only there are duplicates, or else with the first.
        teller = next((each for each in group if len(each.unit.logs) > 1), group[0])
        if counts["conflicts"]:
            what = f"numbers that raw logs give to different records: {counts['conflicts']:,}; "
            what += "those of the first log were kept"
            teller.findings.append(JobFinding(teller.unit.name, what, "", "damage"))
        for each in group:
            self._mark(each, counts if each is teller else {})

    def _begin(self, group: Sequence[_Surveyed], names: Sequence[str]) -> dict[str, int]:
        """Note what is about to change; the logs that were made before, each with its inode."""
        before: dict[str, int] = {}
        for each in group:
            unit = each.unit
            mark, begun = self.split.known(unit.name), self.begun.known(unit.name)
            # A killed run is gone on with by this alone: which logs there may be, and whether all
            # of them are to be replaced.
            logs = {*each.records, *(mark.result["logs"] if mark is not None else ())}
            if self.options["late"] == "separate":
                logs |= {f"{name}_late" for name in each.records}
            if begun is not None:
                logs |= set(begun.result.get("logs", ()))
            if unit.replace:
                before |= dict.fromkeys(logs, 0)
            told = {"replace": unit.replace, "logs": sorted(logs)}
            self.begun.write(unit.name, unit.state, self.options, told)
            if mark is not None and mark.options != self.options:
                self.split.forget(unit.name)
        for name in {*names, *before}:
            self.done.forget(name)
        inodes = {name: _inode(os.path.join(self.target, "v1", name)) for name in before}
        return {name: inode for name, inode in inodes.items() if inode is not None}

    def _remove_stale(self, before: Mapping[str, int]) -> None:
        """Take away logs that were to be replaced and have no records any more."""
        shop = Workshop(self.target, JOB)
        for name, inode in before.items():
            path = os.path.join(self.target, "v1", name)
            if _inode(path) == inode:
                with shop.folder() as aside:
                    os.rename(path, aside / "stale")

    def _end_of(self, name: str) -> int:
        """Number behind the last record of a clean log; 0 where there is none."""
        if not self._has(name):
            return 0
        last = status(os.path.join(self.target, "v1", name)).last_seq
        return 0 if last is None else min(last + 1, 2**63 - 1)  # a row has a BIGINT

    def _frame(
        self, group: Sequence[_Surveyed], keys: Keys, names: Sequence[str], ends: Sequence[int]
    ) -> DataFrame:
        """The records of units, each with a verdict; those below `ends` of clean logs are there."""
        options = self.options
        tapes = [tape for each in group for tape in each.tapes]
        several = len({name for each in group for name in each.records}) < sum(
            len(each.records) * len(each.unit.logs) for each in group
        )
        split = rows.Split(
            tapes,
            keys,
            {name: place for place, name in enumerate(names)},
            options["late"],
            int(options["lateness"] * 1e9),
            self.read,
            self.progress.tally(self.spark),
        )
        count = min(len(names), max(2 * _parallelism(self.spark), 1), 4096)
        frame = self.spark.range(0, len(tapes), 1, len(tapes)).mapInArrow(split, rows.SPLIT)
        frame = frame.repartition(count, "log")
        if several:  # a clean log has records of more than one raw log
            frame = frame.sortWithinPartitions(
                "log", "kind", "native", "venue_ns", "source", "seq"
            ).mapInArrow(rows.VenueJudge(), rows.SPLIT)
        frame = frame.sortWithinPartitions("log", "seq", "source")
        return frame.mapInArrow(rows.Judge(names, options["late"] == "drop", ends), rows.JUDGED)

    def _mark(self, each: _Surveyed, counts: Mapping[str, int]) -> None:
        """The records of a unit are in place."""
        before = self.split.known(each.unit.name)
        old = {} if before is None or each.unit.replace else before.result
        # The raw log's own ledger is read whole with each run.
        gaps, more_gaps = _joined(old.get("gaps", []), each.gaps)
        if more_gaps:
            what = f"gaps that are not told: {more_gaps:,}; there are too many"
            each.findings.append(JobFinding(each.unit.name, what))
        findings, _ = _joined(old.get("findings", []), map(asdict, each.findings))
        logs = dict(old.get("logs", {}))
        for name, count in each.records.items():
            logs[name] = logs.get(name, 0) + count
        if self.options["late"] == "separate":
            logs |= dict.fromkeys(self._late_logs(each.records), 0)
        # Of what was all late, or another log's, there is none: it must not count as lost later.
        logs = {name: count for name, count in logs.items() if self._has(name)}
        totals = dict(old.get("counts", {}))
        for name, number in {**each.counts, **counts}.items():
            totals[name] = totals.get(name, 0) + number
        self.split.write(
            each.unit.name,
            each.unit.state,
            self.options,
            {
                "logs": logs,
                "gaps": gaps,
                "counts": totals,
                "findings": findings,
                "clocks": each.clocks,
            },
        )

    def _late_logs(self, names: Mapping[str, int]) -> list[str]:
        """Logs of late records that there are."""
        return [late for late in (f"{name}_late" for name in names) if self._has(late)]

    # ---- snapshots and gaps ---------------------------------------------------------------------

    def _finish(self, units: Sequence[RefineUnit]) -> None:
        parts = []
        for unit in units:
            mark = self.split.known(unit.name)
            if mark is None:
                continue
            told = mark.result
            self.summary.findings += [JobFinding(**finding) for finding in told["findings"]]
            self.summary.count(**told["counts"])
            raw = [log.path for log in unit.logs]
            for name in sorted(told["logs"]):
                if not self._has(name):
                    continue  # removed since
                gaps = [gap for gap in told["gaps"] if _is_of(gap, name)]
                inputs = ({"log": name, "records": told["logs"][name], "gaps": len(gaps)},)
                parts.append(JobPart(name, inputs, {"gaps": gaps, "raw": raw}))
        run_parts(
            self.spark,
            JOB,
            self.target,
            parts,
            self.finish,
            options=self.options,
            summary=self.summary,
            progress=self.progress,
        )


def _joined(
    old: Sequence[dict[str, Any]], new: Iterable[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """Both, each thing once, as far as a mark has room; and how many have none."""
    found = {tuple(sorted(each.items())): each for each in (*old, *new)}
    return list(found.values())[:MAX_TOLD], max(len(found) - MAX_TOLD, 0)


def _taken_in(unit: RefineUnit, seen: Sequence[Sequence[Survey]], source: int) -> _Surveyed:
    """What the surveys of a unit's slices come to; its raw logs are counted from `source` on."""
    found = _Surveyed(unit)
    strangers: dict[str, int] = {}
    others: dict[str, int] = {}
    for i, (log, parts, told) in enumerate(zip(unit.logs, unit.slices, seen, strict=True)):
        clock = unit.clocks[i] if i < len(unit.clocks) else NO_CLOCK
        last: int | None = None
        for part, each in zip(parts, told, strict=True):
            found.tapes.append(Tape(part, source + i, clock))
            clock = max(clock, each.clock_ns)
            for name, count in each.rows.items():
                found.records[name] = found.records.get(name, 0) + count
            for into, counts in ((strangers, each.strangers), (others, each.others)):
                for name, count in counts.items():
                    into[name] = into.get(name, 0) + count
            for what in each.damage:
                found.findings.append(JobFinding(unit.name, what, log.path, "damage"))
            gaps = list(each.gaps)
            if last is not None and each.first_seq is not None and each.first_seq > last + 1:
                gaps.append([last + 1, each.first_seq - 1, each.first_seq, each.clock_ns])
            found.gaps += [
                _raw_gap(*rest) for gap in gaps for rest in missing_of(gap, unit.neighbours)
            ]
            last = each.last_seq if each.last_seq is not None else last
            if each.untold:
                what = f"gaps that are not told: {each.untold:,}; there are too many"
                found.findings.append(JobFinding(unit.name, what, log.path))
        found.clocks.append(clock)
        found.gaps += [asdict(gap) for gap in GapLedger(log.path).read()]
    for name, count in sorted(strangers.items(), key=lambda item: -item[1])[:20]:
        what = f"records of no known instrument: {count:,}, {name}"
        found.findings.append(JobFinding(unit.name, what, unit.logs[0].path))
    found.counts = {
        "of_no_known_instrument": sum(strangers.values()),
        "of_other_types": sum(others.values()),
    }
    _leave_other_days(unit, found)
    return found


def _leave_other_days(unit: RefineUnit, found: _Surveyed) -> None:
    """The log of a day holds that day: another's would go between those that are there."""
    if unit.date is None:
        return
    for name in [name for name in found.records if name.split("/")[2] != unit.date]:
        what = f"records of another day were left out: {found.records.pop(name):,}, {name}"
        found.findings.append(JobFinding(unit.name, what, unit.logs[0].path, "damage"))


def _raw_gap(first: int, last: int, seq: int, timestamp_ns: int) -> dict[str, Any]:
    return {
        "kind": "record",
        "venue": "",
        "symbol": "",
        "stream": "",
        "first": first,
        "last": last,
        "seq": seq,
        "timestamp_ns": max(timestamp_ns, 0),
        "cause": "the raw log lacks these records",
        "action": "noted",
    }


def _is_of(gap: Mapping[str, Any], name: str) -> bool:
    """Whether a gap of a raw log concerns this clean log."""
    venue, symbol, date, stream = name.split("/")
    return (
        date_of(gap["timestamp_ns"] // DAY_NS).isoformat() == date
        and gap["venue"] in ("", venue)
        and gap["symbol"] in ("", symbol)
        and gap["stream"] in ("", "raw", stream)
    )


def _inode(log: str) -> int | None:
    """What tells a log from one that has taken its place; None when there is none."""
    try:
        return os.stat(os.path.join(log, "control.meta")).st_ino
    except FileNotFoundError:
        return None


def _save(frame: DataFrame, target: str, replace: bool) -> dict[str, int]:
    """Write the rows that are kept by the sink; how many there were of each verdict."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    def counted(verdict: int) -> Any:
        return f.coalesce(f.sum(f.when(f.col("verdict") == verdict, 1).otherwise(0)), f.lit(0))

    seen = Observation()
    late = f.coalesce(f.sum(f.when(f.col("late"), 1).otherwise(0)), f.lit(0))
    frame = frame.observe(
        seen,
        counted(rows.KEPT).alias("kept"),
        counted(rows.DUPLICATE).alias("duplicates"),
        counted(rows.CONFLICT).alias("conflicts"),
        late.alias("late"),
    )
    kept = frame.where(f.col("verdict") == rows.KEPT).drop("verdict", "late")
    (
        kept.write.format("tapewire")
        .mode("overwrite" if replace else "append")
        .option("duplicates", "drop")  # by number: what was published since we looked
        .save(target)
    )
    return {name: int(number) for name, number in seen.get.items()}


def _groups(units: Sequence[RefineUnit]) -> Iterator[list[RefineUnit]]:
    """Units that go through one shuffle; a small one alone would cost more than its work."""
    group: list[RefineUnit] = []
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
