"""Shenzhen: a CSV file of orders and one of trades and cancels.

Both are numbered together in a channel (`order_index`, `trade_index`). Every order comes before its
trades, with its full size; a trade reduces both orders; cancels are in the file of trades. Codes
are ASCII numbers. See docs/howto/china-l3.md for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest.channel_events import (
    ADD,
    CANCEL,
    PRICE_IS_MARKET,
    TRADE,
    ChannelChunks,
    DatedOptions,
    Symbols,
    day_of,
    empty_events,
    keys,
    phase_flags,
    times,
    with_keys,
    without_negatives,
)
from tapewire.ingest.channels import ChannelCheck
from tapewire.ingest.importer import Chunk, Importer
from tapewire.ingest.merging import Reader
from tapewire.ingest.tables import TableBlock, TableColumn, csv_blocks, csv_header

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["Szse", "SzseOptions"]

_Array = np.ndarray[Any, Any]
_BUY, _SELL = 1, 2


@dataclass(frozen=True, kw_only=True)
class SzseOptions(DatedOptions):
    """Options of the Shenzhen importer, with the exchange's own scales as defaults."""

    price_scale: int = 4
    size_scale: int = 2


class Szse(Importer):
    """Importer of Shenzhen's order and trade files."""

    name: ClassVar[str] = "szse"
    venue: ClassVar[Literal["szse"]] = "szse"
    Options: ClassVar[type[SzseOptions]] = SzseOptions

    def __init__(self, options: SzseOptions) -> None:
        self._options = options
        self._symbols = Symbols(suffix=".SZ")

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """Events of all files in the order of their numbers."""
        out = ChannelChunks(self.venue, self._options, self._symbols, report)
        return ChannelCheck(out).chunks([self._reader(source) for source in files])

    def _reader(self, source: SourceFile) -> Reader:
        header = csv_header(source)
        day = day_of(self._options, source)
        if "order_index" in header:
            return lambda report: self._lane(source, day, "order_index", report)
        if "trade_index" in header:
            return lambda report: self._lane(source, day, "trade_index", report)
        raise CorruptSource(
            f"neither orders nor trades of Shenzhen: has={', '.join(header[:40])[:400]}",
            path=str(source.path),
            hint="orders have a column order_index, trades trade_index",
        )

    def _lane(
        self, source: SourceFile, day: int, number: str, report: Report | None
    ) -> Iterator[Sequence[_Array]]:
        orders = number == "order_index"
        owner = self._symbols.owner("code")
        for rows in csv_blocks(source, self._columns(orders), report, owner):
            block = with_keys(rows, day, "channel", number, report)
            block = block.without(
                self._symbols.column(block, "code") < 0, report, "not a stock name"
            )
            block = without_negatives(block, ("volume",), report)
            block = (_valid_orders if orders else _valid_trades)(block, report)
            events = empty_events(len(block))
            events["key"] = keys(day, block["channel"], block[number])
            events["symbol"] = self._symbols.column(block, "code")
            events["line"], events["source"] = block.line, source.index
            events["price"] = block["price"]
            events["qty"] = block["volume"]
            times(events, day, block["time"], None)
            (_orders if orders else _trades)(events, block)
            events["flags"] |= phase_flags(events["type"], block["time"])
            yield [events]

    def _columns(self, orders: bool) -> list[TableColumn]:
        shared = [
            TableColumn("code", "text"),
            TableColumn("time", "clock"),
            TableColumn("price", "rounded", self._options.price_scale),
            TableColumn("volume", "rounded", self._options.size_scale),
            TableColumn("channel"),
            TableColumn("function_code"),
        ]
        if orders:
            return [*shared, TableColumn("order_kind"), TableColumn("order_index")]
        return [
            *shared,
            TableColumn("bid_order"),
            TableColumn("ask_order"),
            TableColumn("trade_index"),
        ]


def _is(column: _Array, letters: bytes) -> _Array:
    return np.isin(column, list(letters))


def _valid_orders(block: TableBlock, report: Report | None) -> TableBlock:
    block = block.without(~_is(block["function_code"], b"12BS"), report, "unknown function_code")
    return block.without(~_is(block["order_kind"], b"12U"), report, "unknown order_kind")


def _valid_trades(block: TableBlock, report: Report | None) -> TableBlock:
    block = block.without(~_is(block["function_code"], b"4F"), report, "unknown function_code")
    invalid = (block["bid_order"] < 0) | (block["ask_order"] < 0)
    cancels = block["function_code"] == ord("4")
    # A cancel names one order, a trade two.
    named = (block["bid_order"] > 0).astype(int) + (block["ask_order"] > 0)
    invalid |= named != np.where(cancels, 1, 2)
    return block.without(invalid, report, "bid_order and ask_order do not match function_code")


def _orders(events: _Array, block: TableBlock) -> None:
    events["type"] = ADD
    events["order_id"] = block["order_index"]
    events["side"] = np.where(_is(block["function_code"], b"1B"), _BUY, _SELL)
    events["ord_type"] = block["order_kind"]
    at_market = events["price"] <= 0  # 0 or -1: no price was given
    events["price"][at_market] = 0
    events["flags"][at_market] |= PRICE_IS_MARKET


def _trades(events: _Array, block: TableBlock) -> None:
    bid, ask = block["bid_order"], block["ask_order"]
    cancels = block["function_code"] == ord("4")
    events["exec_type"] = block["function_code"]
    events["type"] = np.where(cancels, CANCEL, TRADE)
    events["order_id"] = np.where(cancels, bid + ask, 0)
    events["bid_order_id"] = np.where(cancels, 0, bid)
    events["ask_order_id"] = np.where(cancels, 0, ask)
    # The side of a trade is the aggressor's: the later order. An auction has none.
    in_auction = phase_flags(np.zeros(len(block)), block["time"]) != 0
    by_number = np.where(bid > ask, _BUY, _SELL)
    aggressor = np.where(in_auction, 0, by_number)
    events["side"] = np.where(cancels, np.where(bid > 0, _BUY, _SELL), aggressor)
