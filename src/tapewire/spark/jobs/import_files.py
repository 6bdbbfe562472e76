"""`import`: files of venues and vendors into an archive, many at a time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tapewire import ingest
from tapewire.archive.job_marks import JobMarks
from tapewire.errors import ConcurrentUse, CorruptMetadata, InvalidOption, LayoutConflict
from tapewire.ingest.file_units import files_of, units_of
from tapewire.ingest.job import job_id
from tapewire.spark.jobs.parts import JobPart, PartResult, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tapewire.ingest import ImportSummary

__all__ = ["import_files"]

JOB = "import"
BEGUN = "import-begun"
WAIT_SECONDS = 60.0  # for a worker of a killed run, which is still at the same files
_LOOK_SECONDS = 0.1


def import_files(
    spark: SparkSession,
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    format: str,
    unit: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Summary:
    """Import files into an archive, each independent unit of them as a task.

    A unit is what must go through one importer in order: by default a symbol's day (tardis, sse,
    szse, lobster), a file (dbn), or a symbol's days one after the other (captures, itch), told
    apart by the files' names.
    Run again, it passes over what is imported and goes on with the rest; files that have come to
    a unit since then are imported behind the others.

    Args:
        spark: The session. Its workers see the files and the archive by the same paths.
        source: A file, a folder, a pattern, or many of them.
        target: The archive.
        format: A name of `ingest.IMPORTERS`.
        unit: "day", "symbol", "file" or "all" instead of what suits the format.
        progress: Shows how far it is.
        options: Of the importer.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.import_files(spark, "tardis/", "archive/", format="tardis")  # doctest: +SKIP
    """
    started = time.monotonic()
    ingest.importer_class(format).Options(**_known(format, options))  # before any task
    archive = os.path.abspath(os.fspath(target))
    files = files_of(source)
    units = units_of(format, files, unit)
    shown = source if isinstance(source, str | os.PathLike) else f"{len(files)} files"
    summary = Summary(JOB, os.fspath(shown), os.fspath(target))
    parts = [
        JobPart(f"{format}/{name}", tuple(_state(file) for file in of), of)
        for name, of in units.items()
    ]
    os.makedirs(archive, mode=0o700, exist_ok=True)
    results = run_parts(
        spark,
        JOB,
        archive,
        parts,
        _Unit(archive, format, options),
        options=_plain(format, options),
        summary=summary,
        progress=progress if progress is not None else Progress(JOB, quiet=True),
        remake=False,  # an import that has ended is never done again: its files may be gone
    )
    summary.findings += _shared_logs(results)
    summary.seconds = time.monotonic() - started
    return summary


class _Unit:
    """Imports the files of a unit; on a worker."""

    def __init__(self, archive: str, format: str, options: Mapping[str, Any]) -> None:
        self._archive, self._format, self._options = archive, format, dict(options)

    def __call__(self, part: JobPart) -> PartResult:
        jobs = self._jobs_before(part)
        begun = JobMarks(self._archive, BEGUN)
        result = PartResult()
        for files in self._groups(part, jobs, begun):
            # A run that is killed from here on leaves an import of exactly these files: whatever
            # files there are by then, the next run must end that one first.
            begun.write(part.name, [], {}, {"files": files})
            told = self._import(files)
            jobs.append({"job": told.job, "files": files})
            self._take(part, told, result)
        result.notes = {"jobs": jobs}
        return result

    def _jobs_before(self, part: JobPart) -> list[dict[str, Any]]:
        """The imports that have ended, of files that are what they were then."""
        mark = JobMarks(self._archive, JOB).read(part.name)
        if mark is None:
            return []
        if mark.options != _plain(self._format, self._options):
            raise InvalidOption(
                f"imported before with other options: options={mark.options}",
                path=self._archive,
                hint="use the same options, or a new archive",
            )
        try:
            jobs = list(PartResult.from_dict(mark.result).notes["jobs"])
            states = {each["path"]: each for each in mark.inputs}
            for job in jobs:
                here = [file for file in job["files"] if os.path.lexists(_on_disk(file))]
                if here == job["files"] and any(_state(f) != states.get(f) for f in here):
                    self._refuse_other_content(job)
        except (KeyError, TypeError) as error:
            raise CorruptMetadata(
                f"not the mark of an import: {error!r}",
                path=os.fspath(JobMarks(self._archive, JOB).path(part.name)),
                hint="remove the file: what was imported is found again",
            ) from None
        return jobs

    def _refuse_other_content(self, job: Mapping[str, Any]) -> None:
        """A file that was only copied or touched has its content still, and that is what counts."""
        sources = [ingest.SourceFile(file) for file in job["files"]]
        files = [{"name": s.name, "size": s.size, "sha256": s.digest()} for s in sources]
        chosen = ingest.importer_class(self._format).Options(**self._options)
        if job_id(self._format, vars(chosen), files) != job["job"]:
            raise InvalidOption(
                f"a file has changed since it was imported: files={len(files)}",
                path=str(sources[0].path),
                hint="import the files as they are now into a new archive",
            )

    def _groups(
        self, part: JobPart, jobs: list[dict[str, Any]], begun: JobMarks
    ) -> Iterable[list[str]]:
        """What is still to be imported: first what a killed run had begun, then the others."""
        ended = {file for job in jobs for file in job["files"]}
        mark = begun.read(part.name)
        files = [] if mark is None else mark.result.get("files")
        if not isinstance(files, list):
            raise CorruptMetadata(
                "not the files of an import", path=os.fspath(begun.path(part.name))
            )
        unfinished = [] if ended.issuperset(files) else list(files)
        rest = [file for file in part.work if file not in ended and file not in unfinished]
        return [group for group in (unfinished, rest) if group]

    def _import(self, files: list[str]) -> ImportSummary:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return ingest.run(self._format, files, self._archive, **self._options)
            except (ConcurrentUse, LayoutConflict) as error:
                # A worker of a killed run, which has the folder of our own import locked, lets go
                # soon; two tasks that chose one id for two new instruments do not do so twice.
                ours = isinstance(error, LayoutConflict) or os.path.isdir(error.path or "")
                if not ours or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_SECONDS)

    def _take(self, part: JobPart, told: ImportSummary, result: PartResult) -> None:
        result.rows += sum(log.appended for log in told.logs.values())
        result.outputs += told.logs
        result.bytes += sum(_bytes_of(os.path.join(self._archive, log)) for log in told.logs)
        numbers = {"gaps": told.gaps, "bad_rows": sum(told.bad.values())}
        for name, number in numbers.items():
            result.counts[name] = result.counts.get(name, 0) + number
        for why, count in told.bad.items():
            result.findings.append(
                JobFinding(part.name, f"bad rows: {count:,}, {why}", told.rejected or "")
            )
        for log in told.logs.values():
            if log.gaps:
                result.findings.append(JobFinding(part.name, f"gaps: {log.gaps:,}", log.log))
        for book, why in told.untrusted.items():
            result.findings.append(JobFinding(part.name, f"not trusted at the end: {why}", book))


def _known(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    from dataclasses import fields

    known = [field.name for field in fields(ingest.importer_class(format).Options)]
    for name in options:
        if name not in known:
            raise InvalidOption(
                f"this importer has no such option: format={format!r}, option={name!r}",
                hint=f"it has {', '.join(known)}",
            )
    return dict(options)


def _plain(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a mark has them when it is read again."""
    plain: dict[str, Any] = json.loads(json.dumps({"format": format, **options}))
    return plain


def _state(file: str) -> dict[str, Any]:
    """What tells one state of a file from another without reading it."""
    status = os.stat(_on_disk(file))
    return {"path": file, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _on_disk(file: str) -> str:
    """The file itself, or the zip whose member is named."""
    return file if os.path.lexists(file) else file.rpartition("!")[0] or file


def _bytes_of(log: str) -> int:
    with os.scandir(log) as entries:
        return sum(entry.stat().st_blocks * 512 for entry in entries if entry.is_file())


def _shared_logs(results: Mapping[str, PartResult]) -> list[JobFinding]:
    """Logs that two units wrote to: which came first was chance."""
    owner: dict[str, str] = {}
    found = []
    for name, result in sorted(results.items()):
        for log in dict.fromkeys(result.outputs):
            other = owner.setdefault(log, name)
            if other != name:
                what = f"its records are of two units, in the order of their ends: other={other}; "
                what += "import into a new archive with unit=symbol or unit=all"
                found.append(JobFinding(name, what, log, "damage"))
    return found
