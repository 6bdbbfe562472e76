"""Directories of Parquet files: rows in the order of the file names, in files of similar size."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tapewire.errors import CorruptSource

__all__ = ["PartFiles", "copy_file", "parquet_files", "rewrite_parquet"]

ROW_GROUP_BYTES = 32 << 20
_BATCH_ROWS = 65_536


@dataclass
class PartFiles:
    """Writes rows in order into Parquet files of about the same size.

    Args:
        directory: Directory for the files.
        schema: Schema of every file, with its metadata.
        target_bytes: A file of at least this size is complete, and the next one begins.
        codec: Parquet compression.
    """

    directory: Path
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

    def __enter__(self) -> PartFiles:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._writer.close()
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows; a row group is kept in memory."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_bytes >= min(ROW_GROUP_BYTES, self.target_bytes):
            self._write()

    def close(self) -> None:
        """Complete the last file; at least one file is written."""
        if self._waiting or not self.names:
            self._write()
        self._end()

    def _write(self) -> None:
        if self._writer is None:
            name = f"part-{len(self.names):05d}.parquet"
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = open(os.open(self.directory / name, how, 0o600), "wb")  # noqa: SIM115
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


def parquet_files(directory: Path) -> list[Path]:
    """The Parquet files of a directory, sorted by name, which is the order of their rows."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.endswith(".parquet") and path.name[0] not in "._" and path.is_file()
    )


def rewrite_parquet(
    files: Sequence[Path], directory: Path, target_bytes: int, codec: str = "zstd"
) -> PartFiles:
    """Write the rows of Parquet files, in order, into files of about `target_bytes`.

    Args:
        files: The files; all have the same schema.
        directory: An empty directory.
        target_bytes: A file of at least this size is complete, and the next one begins.
        codec: Parquet compression.

    Raises:
        CorruptSource: A file cannot be read, or has another schema than the first.

    Example:
        >>> for number in (1, 2):
        ...     pq.write_table(pa.table({"x": [number]}), tmp / f"{number}.parquet")
        >>> (tmp / "new").mkdir()
        >>> rewrite_parquet(parquet_files(tmp), tmp / "new", 1 << 20).names
        ['part-00000.parquet']
        >>> pq.read_table(tmp / "new")["x"].to_pylist()
        [1, 2]
    """
    schema = _schema_of(files)
    with PartFiles(directory, schema, target_bytes, codec) as out:
        for path in files:
            for batch in _batches(path, schema):
                out.add(batch)
    return out


def _schema_of(files: Sequence[Path]) -> pa.Schema:
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
                "its columns are not those of the first file of the directory",
                path=os.fspath(path),
                hint="rewrite it with the schema of the others",
            )
    return first


def _batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                yield batch.cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error


def copy_file(source: Path, to: Path) -> None:
    """Make a private copy of a regular file; no copy if it does not exist.

    Raises:
        CorruptSource: It is a link, or not a regular file.
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CorruptSource("a symbolic link, not a regular file", path=os.fspath(source)) from None
    with open(fd, "rb") as content:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CorruptSource("not a regular file", path=os.fspath(source))
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(to, how, 0o600), "wb") as copy:
            shutil.copyfileobj(content, copy)
