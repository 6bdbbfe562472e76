"""A log as Parquet files, and back: every record with its number, time, type, flags and bytes.

What is not a record but belongs to the log travels beside the files, under names that Spark and
others pass over: `_types.json`, `_gaps.jsonl`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tapewire.book.gaps import FILE_NAME as GAPS_FILE
from tapewire.config import WriterConfig
from tapewire.errors import CorruptMetadata, CorruptSource, InvalidOption
from tapewire.log import open_log
from tapewire.protocol.json_file import decode
from tapewire.protocol.types_file import FILE_NAME as TYPES_FILE
from tapewire.queue import open_publisher
from tapewire.scan.columns import RowColumns, constant, pieces
from tapewire.scan.logs import LogRef
from tapewire.scan.options import ReadOptions
from tapewire.scan.slice_reader import batches
from tapewire.scan.slices import Slice

__all__ = [
    "SCHEMA",
    "Files",
    "copy_file",
    "log_range",
    "log_to_parquet",
    "parquet_files",
    "parquet_range",
    "parquet_to_log",
]

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("timestamp_ns", pa.int64(), nullable=False),
        pa.field("type_id", pa.int32(), nullable=False),
        pa.field("flags", pa.int32(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("venue", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("date", pa.string()),
    ]
)
META = b"tapewire.log"
ROW_GROUP_BYTES = 32 << 20
ROWS_AT_ONCE = 16_384
BESIDE = {TYPES_FILE: f"_{TYPES_FILE}", GAPS_FILE: f"_{GAPS_FILE}"}
_NOT_CHECKSUMMED = 1
_USERS = 0xFF00  # of a record's flags


@dataclass
class Files:
    """Writes rows into files of about one size, in order.

    Args:
        folder: Where.
        schema: Of every file, with its metadata.
        target_bytes: A file that has so many is ended.
        codec: Of Parquet's compressions.
    """

    folder: Path
    schema: pa.Schema
    target_bytes: int
    codec: str = "zstd"

    def __post_init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.names: list[str] = []
        self._writer: Any = None
        self._file: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._writer.close()
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Put rows behind the others; memory holds a row group."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_bytes >= min(ROW_GROUP_BYTES, self.target_bytes):
            self._write()

    def close(self) -> None:
        """End the last file; there is one at least."""
        if self._waiting or not self.names:
            self._write()
        self._end()

    def _write(self) -> None:
        if self._writer is None:
            name = f"part-{len(self.names):05d}.parquet"
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = open(os.open(self.folder / name, how, 0o600), "wb")  # noqa: SIM115
            self._writer = pq.ParquetWriter(self._file, self.schema, compression=self.codec)
            self.names.append(name)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting, self._waiting_bytes = [], 0
        if self._file.tell() >= self.target_bytes:
            self._end()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self.bytes += self._file.tell()
            self._file.close()
            self._writer = None


def log_to_parquet(log: LogRef, part: Slice | None, folder: Path, **options: Any) -> Files:
    """Write the records of a log into Parquet files of a folder, and what belongs to it beside.

    Args:
        log: The log.
        part: Its records; None: it has none.
        folder: An empty one.
        options: `target_bytes` and `codec`, as of `Files`.

    Raises:
        InvalidOption: The log's numbers begin again.
        CorruptRecord: The log is damaged.
    """
    if part is not None and part.count is not None:
        raise InvalidOption(
            "the numbers of this log begin again: its records cannot be told by them",
            path=log.path,
            hint="archive it, or copy it into a new log",
        )
    names = [log.venue, log.symbol, log.stream, log.date]
    with Files(folder, SCHEMA.with_metadata({META: _about(log)}), **options) as files:
        for batch in () if part is None else batches(part, ReadOptions()):
            for piece in pieces(batch):
                rows = RowColumns(piece, log.name)
                columns = [rows.column(name) for name in SCHEMA.names[:5]]
                columns += [_named(name, rows.rows) for name in names]
                files.add(pa.record_batch(columns, schema=SCHEMA))
    for name, beside in BESIDE.items():
        copy_file(Path(log.path, name), folder / beside)
    return files


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder in the order of their names, which is that of their rows."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(".parquet") and path.name[0] not in "._" and path.is_file()
    )


def parquet_range(folder: Path) -> tuple[int, int] | None:
    """First and last number in files of `log_to_parquet`; None where there is no row.

    Raises:
        CorruptSource: There is something else.
    """
    files = parquet_files(folder)
    if not files and os.listdir(folder):
        raise CorruptSource("not the rows of a log", path=os.fspath(folder))
    found: list[int] = []
    for path in files:
        _read_about(path)
        try:
            with pq.ParquetFile(path) as file:
                for i in range(file.metadata.num_row_groups):
                    told = file.metadata.row_group(i).column(0).statistics
                    if told is not None and told.has_min_max:
                        found += [int(told.min), int(told.max)]
        except (pa.ArrowException, ValueError, OSError) as error:
            raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error
    return (min(found), max(found)) if found else None


def log_range(folder: Path) -> tuple[int, int] | None:
    """First and last number of a log; None where it has no record."""
    with open_log(folder) as reader:
        first = reader.next()
        if first is None:
            return None
        number = last = int(first.seq)
        while len(batch := reader.read_batch(65_536)):
            last = int(batch.seq[-1])
        return number, last


def parquet_to_log(files: Sequence[Path], folder: Path) -> int:
    """Write the rows of `log_to_parquet` into a new log; how many there were.

    Raises:
        CorruptSource: A file cannot be read, or holds something else.
    """
    about = _read_about(files[0])
    config = WriterConfig.archive(
        segment_bytes=about["segment_bytes"], sparse=about["sparse"], checksum=about["checksum"]
    )
    if not about["sparse"]:
        config = config.replace(first_seq=about["first_seq"])
    count = 0
    with open_publisher(folder, config=config) as writer:
        for batch in _rows_of(files):
            flags = batch["flags"].to_numpy() & _USERS
            seqs = batch["seq"].to_numpy()
            if not about["sparse"] and (
                seqs[0] != writer.next_seq or bool((np.diff(seqs) != 1).any())
            ):
                raise CorruptSource(
                    f"rows of a log without holes must follow each other: seq={seqs[0]}, "
                    f"next_seq={writer.next_seq}",
                    path=os.fspath(files[0].parent),
                )
            writer.append_batch(
                batch["type_id"].to_numpy(),
                batch["payload"],
                batch["timestamp_ns"].to_numpy(),
                flags,
                seqs if about["sparse"] else None,
            )
            count += batch.num_rows
        writer.flush_sync()
    for name, beside in BESIDE.items():
        copy_file(files[0].parent / beside, folder / name)
    return count


def _rows_of(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                names = file.schema_arrow.names
                if names != SCHEMA.names:
                    raise CorruptSource(
                        f"not the rows of a log: columns={', '.join(names)[:200]}",
                        path=os.fspath(path),
                        hint='write other tables with df.write.format("tapewire")',
                    )
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=SCHEMA.names[:5]):
                    if batch.num_rows:
                        yield batch.cast(pa.schema(list(SCHEMA)[:5]))
        except (pa.ArrowException, ValueError, OSError) as error:  # ValueError: a null
            raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error


def _about(log: LogRef) -> bytes:
    """What a log is beside its records."""
    from tapewire.queue.status import status

    seen = status(log.path)
    checksum = True
    with open_log(log.path) as reader:
        first = reader.next()
        if first is not None:
            checksum = not first.flags & _NOT_CHECKSUMMED
    return json.dumps(
        {
            "version": 1,
            "log": log.name,
            "sparse": bool(seen.sparse),
            "first_seq": first.seq if first is not None else 0,
            "segment_bytes": seen.segment_bytes,
            "checksum": checksum,
        }
    ).encode()


def _read_about(path: Path) -> dict[str, Any]:
    try:
        text = (pq.read_schema(path).metadata or {}).get(META)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error
    if text is None:
        raise CorruptSource(
            "not the rows of a log",
            path=os.fspath(path),
            hint='write other tables with df.write.format("tapewire")',
        )
    kinds = {"sparse": bool, "first_seq": int, "segment_bytes": int, "checksum": bool}
    try:
        about = decode(text)
        if about["version"] != 1 or any(type(about[k]) is not kind for k, kind in kinds.items()):
            raise ValueError(f"{about!r:.200}")
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptMetadata(
            f"what it says of its log is not right: {error}", path=os.fspath(path)
        ) from None
    return dict(about)


def _named(name: str | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string()) if name is None else constant(name, rows)


def copy_file(source: Path, to: Path) -> None:
    """A private copy of a plain file; none where there is no such file.

    Raises:
        CorruptSource: It is a link, or no file.
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CorruptSource("a link where a file must be", path=os.fspath(source)) from None
    with open(fd, "rb") as content:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CorruptSource("not a plain file", path=os.fspath(source))
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(to, how, 0o600), "wb") as copy:
            shutil.copyfileobj(content, copy)
