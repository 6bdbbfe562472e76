"""The view `gaps`: what is missing in the logs; `tapewire.scan.gaps` finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tapewire.scan.gaps import SCHEMA, plan, read
from tapewire.spark.reading import schemas

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["plan", "read", "schema"]


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[schemas.ViewColumn]:
    """The log, then the fields of a gap in the ledger."""
    return schemas.from_arrow(SCHEMA)
