"""`compact`: Parquet files into files of a given size; archive logs into Parquet and back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.bus.layout import CONTROL
from tapewire.config import check_whole
from tapewire.errors import (
    ConcurrentUse,
    CorruptMetadata,
    CorruptSource,
    InvalidOption,
)
from tapewire.files import is_queue
from tapewire.protocol.instruments import Instruments
from tapewire.queue._native import Upkeep
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.parquet_files import copy_file, parquet_files, rewrite_parquet
from tapewire.scan.parquet_logs import (
    log_range,
    log_to_parquet,
    parquet_range,
    parquet_to_log,
)
from tapewire.scan.slices import Slice, plan
from tapewire.spark.jobs.parts import JobPart, PartResult, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compact"]

JOB = "compact"
TARGET_BYTES = 256 << 20
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
TO = ("parquet", "archive")
_OWN_NAME = re.compile(r"part-\d{5,}\.parquet")


def compact(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str = "parquet",
    target_bytes: int = TARGET_BYTES,
    codec: str = "zstd",
    yes: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Rewrite a tree of logs or of Parquet files; each log or directory is a task.

    * Logs, `to="parquet"`: each log becomes a directory of Parquet files at the same path below the
      target, with all columns of its records and venue, symbol, stream and date.
    * Such a tree, `to="archive"`: the same logs again, record for record.
    * Any other tree of Parquet files: the rows of each directory in the same order, in files of
      about `target_bytes`. With `yes` the target may be the source: each directory is exchanged
      for the new one in one step, and the old files are removed afterwards.

    Args:
        spark: The session. Its workers see source and target by the same paths.
        source: An archive, a part of one, a log; or a directory with Parquet files below it.
        target: The target directory.
        to: "parquet" or "archive".
        target_bytes: Approximate size of a Parquet file.
        codec: Parquet compression: zstd, snappy, gzip, lz4 or none.
        yes: Replace files of the source itself, and replace what is in the target even if it has
            records that the source lacks.
        progress: Shows the progress.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.compact(spark, "archive/", "parquet/")  # doctest: +SKIP
        >>> tws.jobs.compact(spark, "parquet/", "again/", to="archive")  # doctest: +SKIP
    """
    started = time.monotonic()
    if to not in TO:
        raise InvalidOption(f"invalid target: to={to!r}", hint=f"one of {', '.join(TO)}")
    if codec not in CODECS:
        raise InvalidOption(f"unknown codec: codec={codec!r}", hint=f"one of {', '.join(CODECS)}")
    check_whole("target_bytes", target_bytes, 4096)
    top, place = Path(os.path.abspath(source)), Path(os.path.abspath(target))
    if not top.exists():
        raise FileNotFoundError(2, "no such file or directory", os.fspath(top))
    options = {"to": to, "target_bytes": target_bytes, "codec": codec}
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    directories = _parquet_directories(top)
    work: _DirectoryTask
    if to == "archive":
        if not directories:
            raise FileNotFoundError(2, "no Parquet files", os.fspath(top))
        parts, work = _directory_parts(top, directories), _ToLog(place, yes)
    elif directories:
        _refuse_in_place(top, place, yes)
        parts = _directory_parts(top, directories)
        work = _Rewrite(place, yes, target_bytes, codec)
    else:
        parts, work = _log_parts(top), _ToParquet(place, yes, target_bytes, codec)
    with AtomicDirectories(place, JOB).exclusive():
        run_parts(
            spark,
            JOB,
            place,
            parts,
            work,
            options=options,
            summary=summary,
            progress=progress if progress is not None else Progress(JOB, quiet=True),
        )
        _copy_instruments(top, place, to)
    summary.seconds = time.monotonic() - started
    return summary


class _DirectoryTask:
    """Builds a directory in a staging directory, then publishes it; in a task."""

    def __init__(self, target: Path, yes: bool) -> None:
        self.target, self.yes = target, yes

    def __call__(self, part: JobPart) -> PartResult:
        directories = AtomicDirectories(self.target, JOB)
        with directories.new() as staged, contextlib.ExitStack() as held:
            result = self.build(part, staged)
            if result.outputs:
                place = self.target / result.outputs[0]
                self.check(part)
                if os.path.lexists(place):
                    if not self.yes and not self.includes(staged, place):
                        raise InvalidOption(
                            "the target would be replaced, but has content that the source lacks",
                            path=os.fspath(place),
                            hint="give another target, or replace it with yes=True (--yes)",
                        )
                    self.lock(place, held)
                directories.publish(staged, place)
        return result

    def build(self, part: JobPart, staged: Path) -> PartResult:
        """Fill the staging directory; a result without outputs publishes nothing."""
        raise NotImplementedError

    def check(self, part: JobPart) -> None:
        """Check the source again, just before the directory is published."""

    def includes(self, staged: Path, existing: Path) -> bool:
        """Whether the staging directory has everything that an existing directory has."""
        raise NotImplementedError

    def lock(self, existing: Path, held: contextlib.ExitStack) -> None:
        """Keep others from changing a directory that is about to be replaced."""


class _ToParquet(_DirectoryTask):
    def __init__(self, target: Path, yes: bool, target_bytes: int, codec: str) -> None:
        super().__init__(target, yes)
        self._options = {"target_bytes": target_bytes, "codec": codec}

    def build(self, part: JobPart, staged: Path) -> PartResult:
        log, slice_, place = part.work
        files = log_to_parquet(log, slice_, staged, **self._options)
        return PartResult(files.rows, files.bytes, outputs=[place], counts={"logs": 1})

    def includes(self, staged: Path, existing: Path) -> bool:
        try:
            return _is_within(parquet_range(existing), parquet_range(staged))
        except (CorruptSource, CorruptMetadata, NotADirectoryError):
            return False  # not files of `log_to_parquet`

    def lock(self, existing: Path, held: contextlib.ExitStack) -> None:
        if is_queue(existing):
            raise InvalidOption(
                "there is a log at the path of the Parquet files",
                path=os.fspath(existing),
                hint="give another target",
            )


class _ToLog(_DirectoryTask):
    def build(self, part: JobPart, staged: Path) -> PartResult:
        directory, place = part.work
        rows = parquet_to_log(parquet_files(Path(directory)), staged)
        size = sum(f.stat().st_blocks * 512 for f in staged.iterdir() if f.is_file())
        return PartResult(rows, size, outputs=[place], counts={"logs": 1})

    def includes(self, staged: Path, existing: Path) -> bool:
        if is_queue(existing):
            return _is_within(log_range(existing), log_range(staged))
        return existing.is_dir() and not os.listdir(existing)

    def lock(self, existing: Path, held: contextlib.ExitStack) -> None:
        if is_queue(existing):
            held.enter_context(Upkeep(existing))  # keeps writers out


class _Rewrite(_DirectoryTask):
    def __init__(self, target: Path, yes: bool, target_bytes: int, codec: str) -> None:
        super().__init__(target, yes)
        self._target_bytes, self._codec = target_bytes, codec

    def build(self, part: JobPart, staged: Path) -> PartResult:
        directory, place = Path(part.work[0]), part.work[1]
        in_place = self.target / place == directory
        files = parquet_files(directory)
        size = sum(path.stat().st_size for path in files)
        if in_place and len(files) <= max(1, -(-size // self._target_bytes)):
            return PartResult(counts={"directories_unchanged": 1})
        if in_place and any(entry.is_dir() for entry in directory.iterdir()):
            finding = JobFinding(part.name, "has directories next to its files: not changed")
            return PartResult(findings=[finding])
        out = rewrite_parquet(files, staged, self._target_bytes, self._codec)
        for entry in sorted(directory.iterdir()):
            # Other files are kept; hidden files are Spark's checksums of the old ones.
            is_other = entry.is_file() and not entry.is_symlink() and entry not in files
            if is_other and entry.name[0] != ".":
                copy_file(entry, staged / entry.name)
        counts = {"files_before": len(files), "files_after": len(out.names)}
        return PartResult(out.rows, out.bytes, outputs=[place], counts=counts)

    def includes(self, staged: Path, existing: Path) -> bool:
        if not existing.is_dir():
            return False
        own = [_OWN_NAME.fullmatch(path.name) for path in parquet_files(existing)]
        return existing == self._source or all(own)  # files with other names are not of this job

    def check(self, part: JobPart) -> None:
        self._source = Path(part.work[0])
        if tuple(_states(Path(part.work[0]))) != part.inputs:
            raise ConcurrentUse(
                "its files changed while they were read",
                path=part.work[0],
                hint="run again when no process writes to it",
            )


def _is_within(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    """Whether a range of sequence numbers, first and last, is within another range."""
    return one is None or (other is not None and other[0] <= one[0] and one[1] <= other[1])


def _log_parts(top: Path) -> list[JobPart]:
    parts = []
    for log in resolve(os.fspath(top), ReadOptions()):
        slices = plan([log], ReadOptions(partitions=1), 1)
        slice_ = slices[0] if slices else None
        place = _place_of(log, top)
        inputs = ({"path": log.path, **_range(slice_)},)
        parts.append(JobPart(_part_name(place), inputs, (log, slice_, place)))
    return parts


def _range(part: Slice | None) -> dict[str, Any]:
    if part is None:
        return {"first_seq": None, "next_seq": None}
    return {"first_seq": part.seq_from, "next_seq": part.seq_to}


def _place_of(log: LogRef, top: Path) -> str:
    """The path of a log below its archive, whatever part of the archive was given."""
    if log.venue and log.symbol and log.date and log.stream:
        return f"v1/{log.venue}/{log.symbol}/{log.date}/{log.stream}"
    if log.venue and log.date and log.stream == "raw":
        return f"raw/v1/{log.venue}/{log.date}/raw"
    relative = os.path.relpath(log.path, top)
    return os.path.basename(log.path) if relative == "." else relative


def _directory_parts(top: Path, directories: list[Path]) -> list[JobPart]:
    parts = []
    for directory in directories:
        place = os.path.relpath(directory, top)
        if place == ".":
            raise InvalidOption(
                "there are Parquet files directly in the source, which cannot itself be replaced",
                path=os.fspath(top),
                hint="give its parent directory as source and target",
            )
        work = (os.fspath(directory), place)
        parts.append(JobPart(_part_name(place), tuple(_states(directory)), work))
    return parts


def _part_name(place: str) -> str:
    """The path as the name of a part, which may not have all characters of ``date=…``."""
    name = re.sub(r"[^A-Za-z0-9._/-]|(?<![^/])[.]", "-", place)
    if name == place:
        return place
    return f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _states(directory: Path) -> Iterator[dict[str, Any]]:
    for path in parquet_files(directory):
        seen = path.stat()
        yield {"path": os.fspath(path), "size": seen.st_size, "mtime_ns": seen.st_mtime_ns}


def _parquet_directories(top: Path) -> list[Path]:
    found = []
    for parent, names, _ in os.walk(top):
        names[:] = sorted(name for name in names if name[0] not in "._" and name != CONTROL)
        if parquet_files(Path(parent)):
            found.append(Path(parent))
    return found


def _refuse_in_place(top: Path, place: Path, yes: bool) -> None:
    if os.path.realpath(top) == os.path.realpath(place) and not yes:
        raise InvalidOption(
            "the files of the source itself would be replaced",
            path=os.fspath(top),
            hint="confirm with yes=True (--yes), or give another target",
        )


def _copy_instruments(top: Path, place: Path, to: str) -> None:
    """Copy the instruments; for Parquet into the control directory, which others ignore."""
    control = top / CONTROL
    instruments = Instruments.load(control if control.is_dir() else top)
    if len(instruments):
        instruments.save(place / CONTROL if to == "parquet" else place)
