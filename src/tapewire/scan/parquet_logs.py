"""A log as Parquet files and back: sequence number, time, type, flags and payload of each record.

The other files of the log are copied next to the Parquet files under names that Spark and others
ignore: `_types.json`, `_gaps.jsonl`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
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
from tapewire.scan.parquet_files import PartFiles, copy_file, parquet_files
from tapewire.scan.slice_reader import batches
from tapewire.scan.slices import Slice

__all__ = ["SCHEMA", "log_range", "log_to_parquet", "parquet_range", "parquet_to_log"]

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
ROWS_AT_ONCE = 16_384
BESIDE = {TYPES_FILE: f"_{TYPES_FILE}", GAPS_FILE: f"_{GAPS_FILE}"}
_NOT_CHECKSUMMED = 1
_USERS = 0xFF00  # of a record's flags


def log_to_parquet(log: LogRef, part: Slice | None, directory: Path, **options: Any) -> PartFiles:
    """Write the records of a log into Parquet files, and copy its other files next to them.

    Args:
        log: The log.
        part: Its records; None: it has none.
        directory: An empty directory.
        options: `target_bytes` and `codec` of `PartFiles`.

    Raises:
        InvalidOption: The sequence numbers of the log restart.
        CorruptRecord: The log is damaged.
    """
    if part is not None and part.count is not None:
        raise InvalidOption(
            "the sequence numbers of this log restart, so they do not identify its records",
            path=log.path,
            hint="archive it, or copy it into a new log",
        )
    names = [log.venue, log.symbol, log.stream, log.date]
    with PartFiles(directory, SCHEMA.with_metadata({META: _about(log)}), **options) as files:
        for batch in () if part is None else batches(part, ReadOptions()):
            for piece in pieces(batch):
                rows = RowColumns(piece, log.name)
                columns = [rows.column(name) for name in SCHEMA.names[:5]]
                columns += [_named(name, rows.rows) for name in names]
                files.add(pa.record_batch(columns, schema=SCHEMA))
    for name, beside in BESIDE.items():
        copy_file(Path(log.path, name), directory / beside)
    return files


def parquet_range(directory: Path) -> tuple[int, int] | None:
    """First and last sequence number in files of `log_to_parquet`; None without rows.

    Raises:
        CorruptSource: The files are others.
    """
    files = parquet_files(directory)
    if not files and os.listdir(directory):
        raise CorruptSource("not the rows of a log", path=os.fspath(directory))
    found: list[int] = []
    for path in files:
        _read_about(path)
        try:
            with pq.ParquetFile(path) as file:
                for i in range(file.metadata.num_row_groups):
                    seqs = file.metadata.row_group(i).column(0).statistics
                    if seqs is not None and seqs.has_min_max:
                        found += [int(seqs.min), int(seqs.max)]
        except (pa.ArrowException, ValueError, OSError) as error:
            raise CorruptSource(f"cannot be read: {error}", path=os.fspath(path)) from error
    return (min(found), max(found)) if found else None


def log_range(directory: Path) -> tuple[int, int] | None:
    """First and last sequence number of a log; None without records."""
    with open_log(directory) as reader:
        first = reader.next()
        if first is None:
            return None
        low = last = int(first.seq)
        while len(batch := reader.read_batch(65_536)):
            last = int(batch.seq[-1])
        return low, last


def parquet_to_log(files: Sequence[Path], directory: Path) -> int:
    """Write the rows of `log_to_parquet` into a new log; the number of rows.

    Raises:
        CorruptSource: A file cannot be read, or is not from `log_to_parquet`.
    """
    about = _read_about(files[0])
    config = WriterConfig.archive(
        segment_bytes=about["segment_bytes"], sparse=about["sparse"], checksum=about["checksum"]
    )
    if not about["sparse"]:
        config = config.replace(first_seq=about["first_seq"])
    count = 0
    with open_publisher(directory, config=config) as writer:
        for batch in _rows_of(files):
            flags = batch["flags"].to_numpy() & _USERS
            seqs = batch["seq"].to_numpy()
            if not about["sparse"] and (
                seqs[0] != writer.next_seq or bool((np.diff(seqs) != 1).any())
            ):
                raise CorruptSource(
                    "sequence numbers of a log that is not sparse must be contiguous: "
                    f"seq={seqs[0]}, next_seq={writer.next_seq}",
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
        copy_file(files[0].parent / beside, directory / name)
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
    """Properties of a log besides its records, as JSON."""
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
            f"invalid metadata of the log: {error}", path=os.fspath(path)
        ) from None
    return dict(about)


def _named(name: str | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string()) if name is None else constant(name, rows)
