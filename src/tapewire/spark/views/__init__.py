"""What a row can be. A view is a module with three functions; `find` imports it by name.

```python
def schema(options, logs) -> Sequence[ViewColumn]: ...             # all its columns
def plan(options, logs, wanted) -> list[InputPartition]: ...   # parts with `bytes`, in order
def read(part, options) -> Iterator[pa.RecordBatch]: ...       # options.columns, in that order
```

`schema` and `plan` run where the query is planned, `read` in an executor. A part reads the same
rows however often and wherever it is read: streaming makes its own parts and reads them by `read`.
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
    """What the module of a view has."""

    def schema(self, options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[ViewColumn]:
        """All columns of the view."""
        ...

    def plan(self, options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Any]:
        """Parts that together are the range, in order."""
        ...

    def read(self, part: Any, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The rows of one part, with the columns of `options.columns`."""
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
