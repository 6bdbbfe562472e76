"""Books as rows: the best levels from logs, computed natively in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from tapewire.config import check_whole
from tapewire.replay import _features
from tapewire.replay.row_stream import BATCH_ROWS, RowStream

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.replay.row_stream import RowOptions
    from tapewire.replay.sources import Logs

__all__ = ["BookStream", "book_batches", "book_rows"]

MOST_LEVELS = 65_535
# Per side and batch: with more levels a batch has fewer rows, so memory is bounded.
_BATCH_LEVELS = 1 << 20


class BookStream(RowStream):
    """The best levels of books as record batches, up to the current end of the logs.

    For the same `sample` it makes the same rows in the same order as `FeatureStream`, so the two
    can be joined row by row.

    Args:
        logs: As for `FeatureStream`.
        levels: Maximum number of levels of each side.
        sample: "event", "trade" or a span, as for `FeatureStream`.
        orders: Add columns with the number of orders at each level; 0 for books of levels, which
            do not have it.
        **options: As for `FeatureStream`: symbols, time_from, time_to, seq_from, seq_to,
            instruments, on_gap, snapshots, skip_damaged, state, finished.

    Attributes:
        done: Whether `time_to` or `seq_to` has been reached.
        findings: Snapshots that were skipped, with the reason.
    """

    def __init__(
        self,
        logs: Logs,
        levels: int = 10,
        sample: str = "event",
        *,
        orders: bool = False,
        **options: Unpack[RowOptions],
    ) -> None:
        check_whole("levels", levels, 1, MOST_LEVELS)
        self._levels = levels
        self._orders = orders
        plan = _features.Plan([], sample, [], levels, orders)
        batch_rows = max(1, min(BATCH_ROWS, _BATCH_LEVELS // levels))
        super().__init__(logs, plan, venues=True, batch_rows=batch_rows, **options)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        pa = self._pa
        numbers = pa.list_(pa.field("item", pa.int64(), nullable=False))
        kinds = ("prices", "sizes", "orders") if self._orders else ("prices", "sizes")
        fields = [
            ("timestamp_ns", pa.int64()),
            ("seq", pa.uint64()),
            ("venue", pa.string()),
            ("symbol", pa.string()),
            ("trusted", pa.bool_()),
            ("price_scale", pa.int32()),
            ("size_scale", pa.int32()),
            *((f"{side}_{kind}", numbers) for side in ("bid", "ask") for kind in kinds),
        ]
        return pa.schema([pa.field(name, of, nullable=name == "seq") for name, of in fields])

    def __repr__(self) -> str:
        return f"<BookStream levels={self._levels} over {self._sources!r}>"


def book_batches(
    logs: Logs, levels: int = 10, sample: str = "event", **options: Any
) -> Iterator[pa.RecordBatch]:
    """Iterate over the rows of `book_rows` in record batches, in bounded memory.

    Args:
        logs: As for `BookStream`, like the other arguments.
        levels: Maximum number of levels of each side.
        sample: "event", "trade" or a span.
        **options: The other arguments of `BookStream`.
    """
    with BookStream(logs, levels, sample, **options) as stream:
        yield from stream


def book_rows(logs: Logs, levels: int = 10, sample: str = "event", **options: Any) -> pa.Table:
    """Return the best levels of the books in logs as an Arrow table.

    Columns: `timestamp_ns` (the time of the replay, or the point of the grid), `seq` of the record
    that produced the row (null on a grid), `venue`, `symbol`, `trusted`, `price_scale` and
    `size_scale` (decimals of the following columns), and the lists `bid_prices`, `bid_sizes`,
    `ask_prices` and `ask_sizes`, best first, of at most `levels` integers. A book that is
    untrusted, or has had no event yet, has no levels. One pass and slices of any size give the
    same rows.

    Args:
        logs: As for `BookStream`, like the other arguments.
        levels: Maximum number of levels of each side.
        sample: "event", "trade" or a span.
        **options: The other arguments of `BookStream`: symbols, time_from, time_to, orders, …

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as writer:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = writer.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = writer.append(0x1000, second, timestamp_ns=2000)
        >>> table = replay.book_rows(tmp / "book", levels=5, instruments=Instruments([btc]))
        >>> table.select(["seq", "bid_prices", "ask_prices"]).to_pylist()[1]
        {'seq': 1, 'bid_prices': [10005, 10000], 'ask_prices': [10010]}
    """
    with BookStream(logs, levels, sample, **options) as stream:
        return stream._pa.Table.from_batches(list(stream), stream.schema)
