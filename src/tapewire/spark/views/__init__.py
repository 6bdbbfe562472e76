"""The views of the source: what a row is. A view is a module with the functions of `View`.

`schema` and `plan` run where the query is planned, `read` in an executor. A part always has the
same rows, wherever and however often it is read. Streaming plans parts of its own and reads them
with `read`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from tapewire.scan.options import VIEWS

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.spark.reading.schemas import ViewColumn

__all__ = ["View", "find"]


class View(Protocol):
    """The functions of a view's module."""

    def schema(self, options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[ViewColumn]:
        """All columns of the view."""
        ...

    def plan(self, options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Any]:
        """About `wanted` parts that together cover the range, in order; each has `bytes`."""
        ...

    def read(self, part: Any, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The rows of one part, with the columns of `options.columns` in that order."""
        ...


def find(name: str) -> View:
    """The module of a view.

    Example:
        >>> find("records").__name__
        'tapewire.spark.views.records'
    """
    if name not in VIEWS:
        raise LookupError(name)
    return cast("View", importlib.import_module(f"tapewire.spark.views.{name}"))
