"""`import`: files of venues and vendors into an archive, many at the same time."""

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
from tapewire.ingest.registry import importer_options
from tapewire.spark.jobs.parts import JobPart, PartResult, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tapewire.ingest import ImportSummary

__all__ = ["import_files"]

JOB = "import"
BEGUN = "import-begun"
WAIT_SECONDS = 60.0  # for a worker of a killed run that still imports the same files
_RETRY_SECONDS = 0.1


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
    """Import files into an archive, each independent unit of files in a task.

    A unit is a set of files that one importer must read in order: by default a symbol's day
    (tardis, sse, szse, lobster), a file (dbn), or all days of a symbol (captures, itch), by the
    names of the files. Another run skips what is imported and imports the rest; files that were
    added to a unit since then are imported after the others.

    Args:
        spark: The session. Its workers see the files and the archive by the same paths.
        source: A file, a directory, a glob, or several of them.
        target: The archive.
        format: A name of `ingest.IMPORTERS`.
        unit: "day", "symbol", "file" or "all" instead of the default of the format.
        progress: Shows the progress.
        options: Options of the importer.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.import_files(spark, "tardis/", "archive/", format="tardis")  # doctest: +SKIP
    """
    started = time.monotonic()
    importer_options(format, options)  # checked before any task
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
        _ImportUnit(archive, format, options),
        options=_plain(format, options),
        summary=summary,
        progress=progress if progress is not None else Progress(JOB, quiet=True),
        remake=False,  # a finished import is never repeated: its files may be removed
    )
    summary.findings += _shared_logs(results)
    summary.seconds = time.monotonic() - started
    return summary


class _ImportUnit:
    """Imports the files of a unit; in a task."""

    def __init__(self, archive: str, format: str, options: Mapping[str, Any]) -> None:
        self._archive, self._format, self._options = archive, format, dict(options)

    def __call__(self, part: JobPart) -> PartResult:
        jobs = self._jobs_before(part)
        begun = JobMarks(self._archive, BEGUN)
        result = PartResult()
        for files in self._groups(part, jobs, begun):
            # If the run is killed after this, the archive has an unfinished import of exactly these
            # files. The next run must finish it first, whatever files have been added.
            begun.write(part.name, [], {}, {"files": files})
            imported = self._import(files)
            jobs.append({"job": imported.job, "files": files})
            self._add(part, imported, result)
        result.notes = {"jobs": jobs}
        return result

    def _jobs_before(self, part: JobPart) -> list[dict[str, Any]]:
        """The finished imports of this unit; raises if one of their files has changed."""
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
                f"invalid mark of an import: {error!r}",
                path=os.fspath(JobMarks(self._archive, JOB).path(part.name)),
                hint="remove the file: finished imports are found again",
            ) from None
        return jobs

    def _refuse_other_content(self, job: Mapping[str, Any]) -> None:
        """Raise if the content of a file has changed; copied or touched files are fine."""
        sources = [ingest.SourceFile(file) for file in job["files"]]
        files = [{"name": s.name, "size": s.size, "sha256": s.digest()} for s in sources]
        chosen = importer_options(self._format, self._options)
        if job_id(self._format, chosen.of_records(), files) != job["job"]:
            raise InvalidOption(
                f"a file has changed since it was imported: files={len(files)}",
                path=str(sources[0].path),
                hint="import the changed files into a new archive",
            )

    def _groups(
        self, part: JobPart, jobs: list[dict[str, Any]], begun: JobMarks
    ) -> Iterable[list[str]]:
        """The files left to import: first those that a killed run had begun, then the others."""
        ended = {file for job in jobs for file in job["files"]}
        mark = begun.read(part.name)
        files = [] if mark is None else mark.result.get("files")
        if not isinstance(files, list):
            raise CorruptMetadata(
                "invalid files in the mark of an import", path=os.fspath(begun.path(part.name))
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
                # A worker of a killed run that still locks the directory of this import ends soon.
                # Two tasks that chose the same id for two new instruments do not repeat that.
                ours = isinstance(error, LayoutConflict) or os.path.isdir(error.path or "")
                if not ours or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _add(self, part: JobPart, imported: ImportSummary, result: PartResult) -> None:
        result.rows += sum(log.appended for log in imported.logs.values())
        result.outputs += imported.logs
        result.bytes += sum(_bytes_of(os.path.join(self._archive, log)) for log in imported.logs)
        counts = {"gaps": imported.gaps, "bad_rows": sum(imported.bad.values())}
        for name, number in counts.items():
            result.counts[name] = result.counts.get(name, 0) + number
        for why, count in imported.bad.items():
            result.findings.append(
                JobFinding(part.name, f"bad rows: {count:,}, {why}", imported.rejected or "")
            )
        for log in imported.logs.values():
            if log.gaps:
                result.findings.append(JobFinding(part.name, f"gaps: {log.gaps:,}", log.log))
            if log.overlapping:
                text = f"may be in the log twice: {log.overlapping:,} records"
                result.findings.append(JobFinding(part.name, text, log.log))
        for book, why in imported.untrusted.items():
            result.findings.append(JobFinding(part.name, f"not trusted at the end: {why}", book))


def _plain(format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they are after a round trip through a mark."""
    plain: dict[str, Any] = json.loads(json.dumps({"format": format, **options}))
    return plain


def _state(file: str) -> dict[str, Any]:
    """What identifies the state of a file without reading it."""
    status = os.stat(_on_disk(file))
    return {"path": file, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _on_disk(file: str) -> str:
    """The file itself, or the zip archive of a member."""
    return file if os.path.lexists(file) else file.rpartition("!")[0] or file


def _bytes_of(log: str) -> int:
    with os.scandir(log) as entries:
        return sum(entry.stat().st_blocks * 512 for entry in entries if entry.is_file())


def _shared_logs(results: Mapping[str, PartResult]) -> list[JobFinding]:
    """Findings for logs that two units wrote to, in an order that is not defined."""
    owner: dict[str, str] = {}
    found = []
    for name, result in sorted(results.items()):
        for log in dict.fromkeys(result.outputs):
            other = owner.setdefault(log, name)
            if other != name:
                what = f"two units wrote to this log, in no defined order: other={other}; "
                what += "import into a new archive with unit=symbol or unit=all"
                found.append(JobFinding(name, what, log, "damage"))
    return found
