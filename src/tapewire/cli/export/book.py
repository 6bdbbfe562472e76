"""Book events as columns of a file: one row per price level, or per order event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tapewire.cli.export.columns import Refused
from tapewire.errors import CorruptRecord, UnsupportedVersion
from tapewire.log import Batch, Record
from tapewire.protocol.market import BookEvent, levels_of

__all__ = ["BookColumns"]

# Name, Arrow type, and whether every row has a value.
_COLUMNS = (
    ("seq", "uint64", True),
    ("timestamp_ns", "int64", True),
    ("flags", "uint16", True),
    ("venue_id", "uint16", True),
    ("market_id", "uint32", True),
    ("stream_id", "uint32", True),
    ("exchange_ts_ns", "int64", True),
    ("native_seq", "uint64", True),
    ("event_type", "uint8", True),
    ("book_mode", "uint8", True),
    ("event_flags", "uint16", True),
    ("price_scale", "uint8", True),
    ("size_scale", "uint8", True),
    ("update_first", "uint64", True),
    ("update_last", "uint64", True),
    ("update_prev", "uint64", True),
    ("side", "uint8", False),
    ("price", "int64", False),
    ("size", "int64", False),
    ("order_type", "uint8", False),
    ("order_id", "uint64", False),
    ("bid_order_id", "uint64", False),
    ("ask_order_id", "uint64", False),
    ("amt", "int64", False),
    ("ord_type", "uint8", False),
    ("exec_type", "uint8", False),
    ("order_flags", "uint32", False),
)
_NO_LEVEL = (None,) * 3
_NO_ORDER = (None,) * 8


class BookColumns:
    """One row per level: bids (side 1), then asks (side 2), in the order of the event.

    An order event is one row, with its `order_type` and ids. An event without levels, such as a
    reset or a heartbeat, is one row with the header's columns only, so no event is lost.
    """

    names: tuple[str, ...] = tuple(name for name, _, _ in _COLUMNS)

    def admit(self, batch: Batch, refused: Refused) -> Iterator[Batch]:
        """The complete batch if all its events are valid, otherwise the valid ones one by one."""
        try:
            levels_of(batch)
        except (CorruptRecord, UnsupportedVersion):
            for i, record in enumerate(batch):
                try:
                    BookEvent.decode(record)
                except (CorruptRecord, UnsupportedVersion) as error:
                    refused(CorruptRecord(error.message, hint=error.hint))
                else:
                    yield batch[i : i + 1]
        else:
            yield batch

    def text_rows(self, batch: Batch) -> Iterator[tuple[Any, ...]]:
        """Integers, and None for columns that a row does not have."""
        for record in batch:
            yield from _rows(record)

    def arrow_schema(self) -> Any:
        """The integer types of the events."""
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(name, pa.type_for_alias(kind), nullable=not all_)
                for name, kind, all_ in _COLUMNS
            ]
        )

    def arrow(self, batch: Batch) -> Any:
        """Copies the fields."""
        import pyarrow as pa

        schema = self.arrow_schema()
        columns = list(zip(*self.text_rows(batch), strict=True)) or [()] * len(_COLUMNS)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.record_batch(arrays, schema=schema)


def _rows(record: Record) -> Iterator[tuple[Any, ...]]:
    event = BookEvent.decode(record)
    head = (
        record.seq,
        record.timestamp_ns,
        record.flags,
        event.venue_id,
        event.market_id,
        event.stream_id,
        event.exchange_ts_ns,
        event.native_seq,
        event.event_type,
        event.book_mode,
        event.flags,
        event.price_scale,
        event.size_scale,
        event.update_first,
        event.update_last,
        event.update_prev,
    )
    order = event.order
    if order is not None:
        yield (
            *head,
            *(order.side, order.price, order.qty, order.event_type, order.order_id),
            *(order.bid_order_id, order.ask_order_id, order.amt, order.ord_type, order.exec_type),
            order.flags,
        )
        return
    sides = ((1, event.bids.tolist()), (2, event.asks.tolist()))
    if not any(levels for _, levels in sides):
        yield (*head, *_NO_LEVEL, *_NO_ORDER)
    for side, levels in sides:
        for price, size in levels:
            yield (*head, side, price, size, *_NO_ORDER)
