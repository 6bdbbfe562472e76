"""`compact`: small Parquet files into right-sized ones; archive logs into Parquet, and back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

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
from tapewire.scan.parquet_logs import (
    Files,
    copy_file,
    log_range,
    log_to_parquet,
    parquet_files,
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
_OWN = re.compile(r"part-\d{5,}\.parquet")


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
    """Rewrite a tree of logs or of Parquet files; each log or folder is a task.

    * Logs, `to="parquet"`: each log becomes a folder of Parquet files at the same place below the
      target, with all columns of its records and venue, symbol, stream and date.
    * Such a tree, `to="archive"`: the same logs again, record for record.
    * Any other tree of Parquet files: the rows of each folder in the same order, in files of about
      `target_bytes`. The target may be the source, with `yes`: then each folder is exchanged for
      the new one in one step, and the old files are removed after that.

    Args:
        spark: The session. Its workers see source and target by the same paths.
        source: An archive, a part of one, a log; or a folder with Parquet files below it.
        target: Where to.
        to: "parquet" or "archive".
        target_bytes: Of a Parquet file, about.
        codec: Of Parquet: zstd, snappy, gzip, lz4 or none.
        yes: Replace what is in the source itself; and what is in the target, also where that has
            records which the source lacks.
        progress: Shows how far it is.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.compact(spark, "archive/", "parquet/")  # doctest: +SKIP
        >>> tws.jobs.compact(spark, "parquet/", "again/", to="archive")  # doctest: +SKIP
    """
    started = time.monotonic()
    if to not in TO:
        raise InvalidOption(f"not a target: to={to!r}", hint=f"one of {', '.join(TO)}")
    if codec not in CODECS:
        raise InvalidOption(f"not a codec: codec={codec!r}", hint=f"one of {', '.join(CODECS)}")
    check_whole("target_bytes", target_bytes, 4096)
    top, place = Path(os.path.abspath(source)), Path(os.path.abspath(target))
    if not top.exists():
        raise FileNotFoundError(2, "nothing there", os.fspath(top))
    options = {"to": to, "target_bytes": target_bytes, "codec": codec}
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    folders = _parquet_folders(top)
    work: _Work
    if to == "archive":
        if not folders:
            raise FileNotFoundError(2, "no Parquet files there", os.fspath(top))
        parts, work = _folder_parts(top, folders), _ToLog(place, yes)
    elif folders:
        _refuse_in_place(top, place, yes)
        parts, work = _folder_parts(top, folders), _Rewrite(place, yes, target_bytes, codec)
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
        _take_instruments(top, place, to)
    summary.seconds = time.monotonic() - started
    return summary


class _Work:
    """What all three have in common: a folder made aside, then published."""

    def __init__(self, target: Path, yes: bool) -> None:
        self.target, self.yes = target, yes

    def __call__(self, part: JobPart) -> PartResult:
        directories = AtomicDirectories(self.target, JOB)
        with directories.new() as made, contextlib.ExitStack() as held:
            result = self.make(part, made)
            if result.outputs:
                place = self.target / result.outputs[0]
                self.check(part)
                if os.path.lexists(place):
                    if not self.yes and not self.is_in(place, made):
                        raise InvalidOption(
                            "what is there would be replaced by something that does not have "
                            "all of it",
                            path=os.fspath(place),
                            hint="give another target, or say so with yes=True (--yes)",
                        )
                    self.hold(place, held)
                directories.publish(made, place)
        return result

    def make(self, part: JobPart, made: Path) -> PartResult:
        """Fill the folder; a result without outputs leaves everything as it is."""
        raise NotImplementedError

    def check(self, part: JobPart) -> None:
        """The last look before the folder takes its place."""

    def is_in(self, there: Path, made: Path) -> bool:
        """Whether a folder that is there may go: what it has is in the one that was made."""
        raise NotImplementedError

    def hold(self, there: Path, until: contextlib.ExitStack) -> None:
        """Keep others from changing what is about to go."""


class _ToParquet(_Work):
    def __init__(self, target: Path, yes: bool, target_bytes: int, codec: str) -> None:
        super().__init__(target, yes)
        self._options = {"target_bytes": target_bytes, "codec": codec}

    def make(self, part: JobPart, made: Path) -> PartResult:
        log, slice_, place = part.work
        files = log_to_parquet(log, slice_, made, **self._options)
        return PartResult(files.rows, files.bytes, outputs=[place], counts={"logs": 1})

    def is_in(self, there: Path, made: Path) -> bool:
        try:
            return _is_in(parquet_range(there), parquet_range(made))
        except (CorruptSource, CorruptMetadata, NotADirectoryError):
            return False  # something else

    def hold(self, there: Path, until: contextlib.ExitStack) -> None:
        if is_queue(there):
            raise InvalidOption(
                "there is a log in the place of its files",
                path=os.fspath(there),
                hint="give another target",
            )


class _ToLog(_Work):
    def make(self, part: JobPart, made: Path) -> PartResult:
        folder, place = part.work
        rows = parquet_to_log(parquet_files(Path(folder)), made)
        size = sum(f.stat().st_blocks * 512 for f in made.iterdir() if f.is_file())
        return PartResult(rows, size, outputs=[place], counts={"logs": 1})

    def is_in(self, there: Path, made: Path) -> bool:
        if is_queue(there):
            return _is_in(log_range(there), log_range(made))
        return there.is_dir() and not os.listdir(there)

    def hold(self, there: Path, until: contextlib.ExitStack) -> None:
        if is_queue(there):
            until.enter_context(Upkeep(there))  # nobody writes to it


class _Rewrite(_Work):
    def __init__(self, target: Path, yes: bool, target_bytes: int, codec: str) -> None:
        super().__init__(target, yes)
        self._target_bytes, self._codec = target_bytes, codec

    def make(self, part: JobPart, made: Path) -> PartResult:
        folder, place = Path(part.work[0]), part.work[1]
        here = self.target / place == folder
        files = parquet_files(folder)
        size = sum(path.stat().st_size for path in files)
        if here and len(files) <= max(1, -(-size // self._target_bytes)):
            return PartResult(counts={"folders_right_already": 1})
        if here and any(entry.is_dir() for entry in folder.iterdir()):
            finding = JobFinding(part.name, "has folders beside its files: left as it is")
            return PartResult(findings=[finding])
        schema = _schema_of(files)
        with Files(made, schema, self._target_bytes, self._codec) as out:
            for path in files:
                for batch in _batches(path, schema):
                    out.add(batch)
        for entry in sorted(folder.iterdir()):
            # Notes that lie beside; hidden files are Spark's checksums of the old ones.
            beside = entry.is_file() and not entry.is_symlink()
            if beside and entry.name[0] != "." and entry not in files:
                copy_file(entry, made / entry.name)
        counts = {"files_before": len(files), "files_after": len(out.names)}
        return PartResult(out.rows, out.bytes, outputs=[place], counts=counts)

    def is_in(self, there: Path, made: Path) -> bool:
        if not there.is_dir():
            return False
        own = [_OWN.fullmatch(path.name) for path in parquet_files(there)]
        return there == self._source or all(own)  # files of other names are not of this job

    def check(self, part: JobPart) -> None:
        self._source = Path(part.work[0])
        if tuple(_states(Path(part.work[0]))) != part.inputs:
            raise ConcurrentUse(
                "its files changed while they were read",
                path=part.work[0],
                hint="run again when nobody writes to it",
            )


def _is_in(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    """Whether the numbers of a log, first and last, are among those of another."""
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
    """Where a log lies below an archive, whatever part of it was given."""
    if log.venue and log.symbol and log.date and log.stream:
        return f"v1/{log.venue}/{log.symbol}/{log.date}/{log.stream}"
    if log.venue and log.date and log.stream == "raw":
        return f"raw/v1/{log.venue}/{log.date}/raw"
    relative = os.path.relpath(log.path, top)
    return os.path.basename(log.path) if relative == "." else relative


def _folder_parts(top: Path, folders: list[Path]) -> list[JobPart]:
    parts = []
    for folder in folders:
        place = os.path.relpath(folder, top)
        if place == ".":
            raise InvalidOption(
                "there are Parquet files in the source itself, which cannot be exchanged whole",
                path=os.fspath(top),
                hint="give the folder above it as source and target",
            )
        work = (os.fspath(folder), place)
        parts.append(JobPart(_part_name(place), tuple(_states(folder)), work))
    return parts


def _part_name(place: str) -> str:
    """The place as the name of a part, whose characters are fewer than those of ``date=…``."""
    name = re.sub(r"[^A-Za-z0-9._/-]|(?<![^/])[.]", "-", place)
    if name == place:
        return place
    return f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _states(folder: Path) -> Iterator[dict[str, Any]]:
    for path in parquet_files(folder):
        seen = path.stat()
        yield {"path": os.fspath(path), "size": seen.st_size, "mtime_ns": seen.st_mtime_ns}


def _parquet_folders(top: Path) -> list[Path]:
    found = []
    for parent, folders, _ in os.walk(top):
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name != CONTROL)
        if parquet_files(Path(parent)):
            found.append(Path(parent))
    return found


def _refuse_in_place(top: Path, place: Path, yes: bool) -> None:
    if os.path.realpath(top) == os.path.realpath(place) and not yes:
        raise InvalidOption(
            "the files of the source itself would be replaced",
            path=os.fspath(top),
            hint="say so with yes=True (--yes), or give another target",
        )


def _schema_of(files: list[Path]) -> pa.Schema:
    first: pa.Schema = None
    for path in files:
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error
        if first is None:
            first = schema
        elif not schema.equals(first):
            raise CorruptSource(
                "its columns are not those of the first file of the folder",
                path=os.fspath(path),
                hint="rewrite it with the schema of the others",
            )
    return first


def _batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(65_536):
                yield batch.cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error


def _take_instruments(top: Path, place: Path, to: str) -> None:
    """The instruments travel too; beside Parquet files in the folder that others pass over."""
    aside = top / CONTROL
    instruments = Instruments.load(aside if aside.is_dir() else top)
    if len(instruments):
        instruments.save(place / CONTROL if to == "parquet" else place)
