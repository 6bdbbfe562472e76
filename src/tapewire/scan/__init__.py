"""Logs as tables, without Spark: the logs at a path, slices of them, and their rows as Arrow.

`resolve` finds the logs at a path, `plan` cuts them into slices that can be read anywhere and that
together are exactly the range, and `batches` reads a slice. `days_of` lists clean logs by symbol
and day. The Spark source, the jobs and `tapewire.refine` are built on these.

Example:
    >>> import tapewire as tw
    >>> from tapewire import scan
    >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
    ...     _ = writer.append_batch(1, [b"a", b"b", b"c"])
    >>> options = scan.ReadOptions(seq_from=1)
    >>> slices = scan.plan(scan.resolve(str(tmp / "q"), options), options, 1)
    >>> [batch.seq.tolist() for part in slices for batch in scan.batches(part, options)]
    [[1, 2]]
"""

from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.slice_reader import batches
from tapewire.scan.slices import Slice, plan
from tapewire.scan.symbol_days import SymbolDay, days_of

__all__ = [
    "LogRef",
    "ReadOptions",
    "Slice",
    "SymbolDay",
    "batches",
    "days_of",
    "plan",
    "resolve",
]
