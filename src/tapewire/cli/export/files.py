"""The files that `tapewire export` writes: CSV, JSONL, Parquet and Arrow IPC, batch by batch."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any, Protocol

import numpy as np

from tapewire.cli.export.columns import Columns, sizes_of
from tapewire.cli.records import Messages, Show, record_line
from tapewire.log import Batch

__all__ = ["Sink", "make_sink", "new_file", "standard_output"]

# A row group of a Parquet file: large enough to scan well, small enough to hold in memory.
_ROW_GROUP_ROWS = 1 << 18
_ROW_GROUP_BYTES = 64 << 20


class Sink(Protocol):
    """A file being written."""

    def write(self, batch: Batch) -> None:
        """Append a batch."""
        ...

    def close(self) -> None:
        """Write the end of the format; the file itself stays open."""
        ...


def make_sink(
    format_: str, file: IO[bytes], columns: Columns, messages: Messages, show: Show
) -> Sink:
    """A sink that writes `format_` to an open file."""
    if format_ == "csv":
        return _Csv(file, columns)
    if format_ == "jsonl":
        return _JsonLines(file, messages, show)
    if format_ == "parquet":
        return _Parquet(file, columns)
    return _Arrow(file, columns)


class _Csv:
    def __init__(self, file: IO[bytes], columns: Columns) -> None:
        self._columns = columns
        self._text = io.TextIOWrapper(file, "utf-8", newline="")
        # The csv module quotes fields that contain a character of the line terminator. Most readers
        # of CSV take a lone carriage return as the end of a line, so the terminator has both
        # characters, and `write` removes the carriage return.
        self._rows = csv.writer(_UnixLines(self._text), lineterminator="\r\n")
        self._rows.writerow(columns.names)

    def write(self, batch: Batch) -> None:
        self._rows.writerows(self._columns.text_rows(batch))

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


class _UnixLines:
    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def write(self, row: str) -> int:
        return self._text.write(f"{row[:-2]}\n")


class _JsonLines:
    def __init__(self, file: IO[bytes], messages: Messages, show: Show) -> None:
        self._file = file
        self._messages = messages
        self._show = show

    def write(self, batch: Batch) -> None:
        for record in batch:
            self._file.write(record_line(record, self._messages, self._show).encode())

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, file: IO[bytes], columns: Columns) -> None:
        import pyarrow.parquet as pq

        self._columns = columns
        self._writer = pq.ParquetWriter(file, columns.arrow_schema(), compression="zstd")
        self._held: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, batch: Batch) -> None:
        for part in _parts(batch):
            table = self._columns.arrow(part)
            self._held.append(table)
            self._rows += table.num_rows
            self._bytes += table.nbytes
            if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
                self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._rows)
        self._held = []
        self._rows = self._bytes = 0

    def close(self) -> None:
        self._write_group()
        self._writer.close()


class _Arrow:
    def __init__(self, file: IO[bytes], columns: Columns) -> None:
        import pyarrow as pa

        self._columns = columns
        self._writer = pa.ipc.new_file(file, columns.arrow_schema())

    def write(self, batch: Batch) -> None:
        for part in _parts(batch):
            self._writer.write_batch(self._columns.arrow(part))

    def close(self) -> None:
        self._writer.close()


def _parts(batch: Batch) -> Iterator[Batch]:
    """The batch in slices that are small enough for a column.

    A column of `binary` holds at most 2 GiB, and 65,536 records can be much larger.
    """
    ends = np.cumsum(sizes_of(batch))
    start = 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _ROW_GROUP_BYTES, "right"))
        end = max(end, start + 1)  # one record may be larger
        yield batch[start:end]
        start = end


@contextlib.contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Standard output, for bytes; it is flushed, but stays open."""
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def new_file(path: str, force: bool) -> Iterator[IO[bytes]]:
    """A file that appears at `path` when the block has ended without an error, and otherwise not.

    It is written under a temporary name in the same directory, and only its owner may read it.

    Raises:
        FileExistsError: `path` exists and `force` is not set, or it is not a regular file.
        FileNotFoundError: The directory does not exist.
    """
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
    if os.path.lexists(path) and not (force and stat.S_ISREG(os.lstat(path).st_mode)):
        raise FileExistsError(errno.EEXIST, "the file exists", path)
    # A random name: in a container a process id is that of an earlier run, which may have left one.
    descriptor, temporary = tempfile.mkstemp(".tmp", f".{name}.", directory)
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(temporary, path)
        else:
            _rename_without_replacing(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _rename_without_replacing(old: str, new: str) -> None:
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # The filesystem has no hard links: a file that was created there meanwhile is replaced.
        os.rename(old, new)
        return
    os.unlink(old)
