"""Books as rows: the best levels out of a tape, natively, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from tapewire.config import check_whole
from tapewire.replay import _features
from tapewire.replay.names import Names
from tapewire.replay.row_stream import BATCH_ROWS, RowStream

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.replay.row_stream import RowOptions
    from tapewire.replay.sources import Logs

__all__ = ["BookStream", "book_batches", "book_rows"]

MOST_LEVELS = 65_535
# Of one side and one batch, so that many levels make fewer rows and not more memory.
_BATCH_LEVELS = 1 << 20


class BookStream(RowStream):
    """The best levels of books as record batches, as far as the tape goes now.

    Rows are made where `FeatureStream` makes them for the same `sample`, in the same order: those
    of both lie beside each other.

    Args:
        logs: As for `FeatureStream`.
        levels: How many of each side, at most.
        sample: "event", "trade" or a span, as for `FeatureStream`.
        orders: Columns with the number of orders at each level, too: of books of orders, which
            alone know it; 0 of others.
        **options: Those of `FeatureStream`: symbols, time_from, time_to, seq_from, seq_to,
            instruments, on_gap, snapshots, skip_damaged, state, finished.

    Attributes:
        done: Whether the tape has reached `time_to` or `seq_to`.
        findings: Snapshots that were passed over, and why.
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
        super().__init__(logs, plan, Names, venues=True, batch_rows=batch_rows, **options)

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
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
    """The rows of `book_rows` in record batches: in bounded memory.

    Args:
        logs: As for `BookStream`, like all that follow.
        levels: How many of each side, at most.
        sample: "event", "trade" or a span.
        **options: The others of `BookStream`.
    """
    with BookStream(logs, levels, sample, **options) as stream:
        yield from stream


def book_rows(logs: Logs, levels: int = 10, sample: str = "event", **options: Any) -> pa.Table:
    """The best levels of the books of a tape, as an Arrow table.

    Columns: `timestamp_ns` (the tape's clock, or the point of the grid), `seq` of the record that
    brought the row about (null on a grid), `venue`, `symbol`, `trusted`, `price_scale` and
    `size_scale` (decimals of what follows), and the lists `bid_prices`, `bid_sizes`, `ask_prices`
    and `ask_sizes`, best first, of at most `levels` integers. A book that cannot be trusted, or has
    had no event yet, has no levels. The same rows come out of one pass and of slices of any size.

    Args:
        logs: As for `BookStream`, like all that follow.
        levels: How many of each side, at most.
        sample: "event", "trade" or a span.
        **options: The others of `BookStream`: symbols, time_from, time_to, orders, …

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as tape:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = tape.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = tape.append(0x1000, second, timestamp_ns=2000)
        >>> table = replay.book_rows(tmp / "book", levels=5, instruments=Instruments([btc]))
        >>> table.select(["seq", "bid_prices", "ask_prices"]).to_pylist()[1]
        {'seq': 1, 'bid_prices': [10005, 10000], 'ask_prices': [10010]}
    """
    with BookStream(logs, levels, sample, **options) as stream:
        return stream._pa.Table.from_batches(list(stream), stream.schema)
