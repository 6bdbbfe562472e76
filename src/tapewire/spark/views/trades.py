"""The view `trades`: every `TradeTick` of the logs, with venue and symbol of its instrument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as sql

from tapewire.protocol import registry
from tapewire.protocol.market import TRADE_TICK, Maker, TradeTick
from tapewire.scan import slices
from tapewire.scan.columns import RowColumns, bigint, decimals, lengths, pieces, structs
from tapewire.scan.instruments import InstrumentNames, price_scale
from tapewire.scan.slice_reader import batches, refuse_rows
from tapewire.spark.reading import schemas

if TYPE_CHECKING:
    from tapewire.log import Batch
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["plan", "read", "schema"]

_Array = np.ndarray[Any, Any]
_LAYOUT = TradeTick.layout()


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[schemas.ViewColumn]:
    """The columns of a trade; `price` is DECIMAL with `prices=decimal`."""
    if options.prices == "scaled":
        return schemas.TRADES
    price = schemas.ViewColumn("price", sql.DecimalType(38, price_scale(options, logs)))
    return [price if column.name == "price" else column for column in schemas.TRADES]


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Slice]:
    """Slices of the logs, cut at entries of the seek index."""
    return slices.plan(logs, options, wanted)


def read(part: Slice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The trades of a slice; a DECIMAL has the scale of its batch, which the caller converts."""
    names = options.columns or tuple(column.name for column in schemas.TRADES)
    instruments = InstrumentNames(part.log, options)
    for batch in batches(part, options):
        for piece in pieces(batch):
            if not (piece.type_id == TRADE_TICK).any():
                continue
            ticks = _Ticks(piece, part.log.name, instruments, options)
            if ticks.rows.rows:
                yield pa.record_batch([ticks.column(n) for n in names], names=list(names))


class _Ticks:
    """The trades of one batch."""

    def __init__(
        self, batch: Batch, queue: str, instruments: InstrumentNames, options: ReadOptions
    ) -> None:
        self._options = options
        chosen = batch.type_id == TRADE_TICK
        sizes = lengths(batch.to_arrow().column("payload"))
        invalid = chosen & (sizes != _LAYOUT.size)
        if invalid.any():
            error = registry.wrong_size(int(sizes[invalid][0]), [_LAYOUT])
            refuse_rows(error, RowColumns(batch, queue, invalid), options)
            chosen &= ~invalid
        rows = RowColumns(batch, queue, chosen)
        ticks = structs(rows.payload_views, _LAYOUT.dtype)
        # There are few markets and many trades: look up the names once per market.
        ids = np.stack([ticks["market_id"].astype("u8"), ticks["symbol_hash"]], axis=1)
        markets, self._market = np.unique(ids, axis=0, return_inverse=True)
        self._market = self._market.reshape(-1)
        pairs: list[tuple[int, int]] = [(int(a), int(b)) for a, b in markets.tolist()]
        asked = [instruments.wanted(*pair) for pair in pairs]
        self._names = [
            instruments.name(*pair) if yes else ("", "")
            for pair, yes in zip(pairs, asked, strict=True)
        ]
        wanted = np.array(asked, bool)[self._market]
        if not wanted.all():
            chosen[chosen] = wanted
            rows, ticks, self._market = (
                RowColumns(batch, queue, chosen),
                ticks[wanted],
                self._market[wanted],
            )
        self.rows, self._ticks = rows, ticks

    def column(self, name: str) -> pa.Array:
        """One column of the view."""
        match name:
            case "venue" | "symbol":
                texts = [pair[name == "symbol"] for pair in self._names]
                return _looked_up(self._market, texts)
            case "exchange_ts_ns":
                return self._bigint(name, "timestamp_ns")
            case "price" if self._options.prices == "decimal":
                scales = self._field("price_scale")
                return decimals(self._field("price"), scales, int(scales.max()))
            case "price" | "size":
                return pa.array(self._field(name))
            case "price_scale" | "size_scale":
                return pa.array(self._field(name).astype("i4"))
            case "side":
                return _sides(self._field("is_buyer_maker"))
            case "trade_id" | "buyer_order_id" | "seller_order_id":
                return self._bigint(name, name)
        return self.rows.column(name)

    def _bigint(self, name: str, field: str) -> pa.Array:
        return bigint(name, self._field(field), self.rows.queue, self.rows.seq_of)

    def _field(self, name: str) -> _Array:
        return np.ascontiguousarray(self._ticks[name])


def _looked_up(indices: _Array, texts: list[str]) -> pa.Array:
    made = pa.DictionaryArray.from_arrays(pa.array(indices.astype("i4")), pa.array(texts))
    return made.cast(pa.string())


def _sides(makers: _Array) -> pa.Array:
    """The side of the aggressor, whose order did not rest in the book."""
    indices = pa.array(
        np.where(makers == Maker.SELLER, 0, 1).astype("i4"),
        mask=(makers != Maker.SELLER) & (makers != Maker.BUYER),
    )
    return pa.DictionaryArray.from_arrays(indices, pa.array(["buy", "sell"])).cast(pa.string())
