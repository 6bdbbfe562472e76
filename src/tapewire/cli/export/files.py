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

__all__ = ["Sink", "make_sink", "standard_output", "written_whole"]

# A row group of a Parquet file: large enough to scan well, small enough to hold in memory.
_ROW_GROUP_ROWS = 1 << 18
_ROW_GROUP_BYTES = 64 << 20


class Sink(Protocol):
    """A file being written."""

    def write(self, batch: Batch) -> None:
        """Append a batch."""
        ...

    def close(self) -> None:
        """Write what belongs at the end; the file itself stays open."""
        ...


def make_sink(
    format_: str, file: IO[bytes], columns: Columns, messages: Messages, show: Show
) -> Sink:
    """What writes `format_` into an open file."""
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
        # The module quotes what holds a character of its line's end, and a lone carriage return
        # ends a line for most who read CSV: so it is told of both, and `write` takes one away.
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
    """The batch in slices whose payloads are copied into memory without harm.

    A column of `binary` ends at 2 GiB, and 65,536 records can be much more than that.
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
    """Standard output, for bytes; it stays open."""
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def written_whole(path: str, force: bool) -> Iterator[IO[bytes]]:
    """A file that appears under its name when the block has ended well, and not at all otherwise.

    Until then it has a name of its own beside it; readable by its owner alone.

    Raises:
        FileExistsError: There is something under this name already, and `force` is not set; or it
            is no plain file, which is never replaced.
        FileNotFoundError: There is no such folder.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    if os.path.lexists(path) and not (force and stat.S_ISREG(os.lstat(path).st_mode)):
        raise FileExistsError(errno.EEXIST, "there is something already", path)
    # A name nobody has: in a container every run has the process id of one that was killed.
    descriptor, temporary = tempfile.mkstemp(".tmp", f".{name}.", folder)
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
        # No hard links on this filesystem: what appeared there since we looked is replaced.
        os.rename(old, new)
        return
    os.unlink(old)
