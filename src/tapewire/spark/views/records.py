"""The view `records`: one row per record, as a reader returns it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tapewire.errors import InvalidOption
from tapewire.scan import slices
from tapewire.scan.columns import RowColumns, pieces
from tapewire.scan.slice_reader import batches
from tapewire.spark.reading import schemas

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["plan", "read", "refuse_unknown_symbols", "schema"]


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[schemas.ViewColumn]:
    """The columns of a record, the same for all logs."""
    return schemas.RECORDS


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Slice]:
    """Slices of the logs, cut at entries of the seek index."""
    refuse_unknown_symbols(options, logs)
    return slices.plan(logs, options, wanted)


def read(part: Slice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a slice; payloads are copied only if the column is requested."""
    names = options.columns or [column.name for column in schemas.RECORDS]
    types = None if options.types is None else np.array(options.types, "u2")
    for batch in batches(part, options):
        for piece in pieces(batch) if "payload" in names else (batch,):
            chosen = None if types is None else np.isin(piece.type_id, types)
            rows = RowColumns(piece, part.log.name, chosen)
            if rows.rows:
                yield pa.record_batch([rows.column(name) for name in names], names=list(names))


def refuse_unknown_symbols(options: ReadOptions, logs: Sequence[LogRef]) -> None:
    """Raise if `symbols` is given and the path of a log does not contain its symbol."""
    if options.symbols is None:
        return
    for log in logs:
        if log.symbol is None:
            raise InvalidOption(
                f"the path of a log does not contain its symbol: queue={log.name}, "
                f"view={options.view}",
                path=log.path,
                hint="symbols selects among logs of one symbol each: refine this log first, or "
                "omit symbols",
            )
