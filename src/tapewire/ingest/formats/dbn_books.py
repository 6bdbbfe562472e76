"""Chunks from records of DBN: single orders, snapshots of levels, trades."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest._parsers import L2Grouper
from tapewire.ingest.formats.dbn_rows import UNDEFINED_PRICE, DbnRows, at_scale
from tapewire.ingest.importer import Chunk
from tapewire.ingest.level_order import OUT_OF_ORDER, out_of_order
from tapewire.ingest.losses import Lost
from tapewire.ingest.order_chunks import book_chunk, trades_chunk

if TYPE_CHECKING:
    from tapewire.ingest.importer import ImportOptions
    from tapewire.ingest.report import Report
    from tapewire.protocol.instruments import Instrument

__all__ = ["LevelBooks", "OrderBooks", "are_trades", "not_of_orders", "trades_of"]

_Array = np.ndarray[Any, Any]
ADD, CANCEL, MODIFY, RESET = 1, 2, 3, 5  # L3Type
LAST, TOP, SNAPSHOT, LEVEL, MAYBE_BAD = 0x80, 0x40, 0x20, 0x10, 0x04  # flags
UNDEFINED_SIZE = (1 << 32) - 1
_WHOLE = 2  # l2_groups.hpp, Belongs

_NO_ACTION, _NOT_OF_ORDERS = 0, 255


def _by_letter(default: int, **values: int) -> _Array:
    table = np.full(256, default, np.uint8)
    for letter, value in values.items():
        table[ord(letter)] = value
    return table


# A fill does not change the book: the cancel after it does. An action of none changes nothing.
_TYPES = _by_letter(
    _NO_ACTION,
    A=ADD,
    C=CANCEL,
    M=MODIFY,
    R=RESET,
    T=_NOT_OF_ORDERS,
    F=_NOT_OF_ORDERS,
    N=_NOT_OF_ORDERS,
)
_SIDES = _by_letter(0, B=1, A=2)
_MAKERS = _by_letter(2, A=1, B=0)  # the resting side, if the letter is the aggressor's side


def are_trades(rows: DbnRows) -> _Array:
    """Which rows have a trade."""
    found: _Array = rows["action"] == ord("T")
    return found


def not_of_orders(rows: DbnRows) -> _Array:
    """Which rows of mbo do not change a book of orders."""
    found: _Array = _TYPES[rows["action"]] == _NOT_OF_ORDERS
    return found


def are_live(rows: DbnRows) -> _Array:
    """Which rows of mbo are events of the feed: valid, and not of a snapshot."""
    live: _Array = ((rows["flags"] & SNAPSHOT) == 0) & (_TYPES[rows["action"]] != _NO_ACTION)
    return live


def are_clears(rows: DbnRows) -> _Array:
    """Which rows of mbo clear their book."""
    clears: _Array = _TYPES[rows["action"]] == RESET
    return clears


class OrderBooks:
    """mbo: adds, cancels, modifications and clears, as events of orders."""

    def __init__(self, options: ImportOptions, report: Report) -> None:
        self._options = options
        self._report = report
        self._latest: dict[tuple[str, str], int] = {}  # the number of the book's instrument
        self._doubted: dict[tuple[str, str], bool] = {}  # whether the last row was flagged
        # Of each book and channel, the last sequence number.
        self._sequences: dict[tuple[str, int], int] = {}

    def chunks(self, instrument: Instrument, number: int, rows: DbnRows) -> Iterator[Chunk]:
        """The events in the next rows of the instrument with this number."""
        report = self._report
        types = _TYPES[rows["action"]]
        symbol = instrument.symbol
        rows = rows.without(types == _NO_ACTION, report, "unknown action", symbol=symbol)
        types = _TYPES[rows["action"]]
        for letter, kind in (("F", "fill, beside its cancel"), ("N", "record without an action")):
            if count := int((rows["action"] == ord(letter)).sum()):
                report.skipped[kind] += count
        rows = rows.where(types != _NOT_OF_ORDERS)
        levels = (rows["flags"] & (TOP | LEVEL)) != 0
        if levels.any():
            report.skipped["of a level, not an order"] += int(levels.sum())
            rows = rows.where(~levels)
        rows = self._valid(rows, symbol)
        self._check_flags(instrument, rows)
        yield from self._book(instrument, number, rows)

    def _check_flags(self, instrument: Instrument, rows: DbnRows) -> None:
        """Report the first row of each run that is flagged as possibly after a loss."""
        if not len(rows):
            return
        key = (instrument.venue, instrument.symbol)
        doubt = (rows["flags"] & MAYBE_BAD) != 0
        clear = rows["action"] == ord("R")
        known = np.concatenate([[self._doubted.get(key, False)], (doubt & ~clear)[:-1]])
        self._doubted[key] = bool(doubt[-1] & ~clear[-1])
        for line in rows.numbers[doubt & ~known].tolist():
            self._report.lost(rows.source, Lost(line, instrument.symbol, "venue"))

    def _valid(self, rows: DbnRows, symbol: str) -> DbnRows:
        """The valid rows; the others are reported as bad."""
        report = self._report
        types = _TYPES[rows["action"]]
        placed = (types == ADD) | (types == MODIFY)
        rows = rows.without(
            placed & (_SIDES[rows["side"]] == 0), report, "neither a buy nor a sell", symbol=symbol
        )
        types, sizes = _TYPES[rows["action"]], rows["size"]
        nothing = ((types == ADD) | (types == CANCEL)) & (sizes == 0)
        nothing |= (types != RESET) & (sizes == UNDEFINED_SIZE)
        rows = rows.without(nothing, report, "size is zero", symbol=symbol)
        types = _TYPES[rows["action"]]
        placed = (types == ADD) | (types == MODIFY)
        return _priced(rows, placed, self._options.price_scale, report, symbol)

    def _check_sequence(self, symbol: str, rows: DbnRows, types: _Array) -> None:
        """Report sequence numbers that go back; that some are missing is normal in one symbol."""
        live = (rows["flags"] & SNAPSHOT) == 0
        for channel in np.unique(rows["channel_id"]).tolist():
            at = np.flatnonzero(live & (rows["channel_id"] == channel))
            if not len(at):
                continue
            sequences = rows["sequence"][at].astype(np.int64)
            key = (symbol, channel)
            before = np.concatenate([[self._sequences.get(key, 0)], sequences[:-1]])
            self._sequences[key] = int(sequences[-1])
            back = (sequences < before) & (types[at] != RESET)
            for i in at[back].tolist():
                line = int(rows.numbers[i])
                self._report.lost(rows.source, Lost(line, symbol, "out_of_order"))

    def _book(self, instrument: Instrument, number: int, rows: DbnRows) -> Iterator[Chunk]:
        if not len(rows):
            return
        key = (instrument.venue, instrument.symbol)
        types = _TYPES[rows["action"]]
        # The book begins with this file, or belonged to another instrument with the same name.
        begins = self._latest.get(key) != number and int(types[0]) != RESET
        self._latest[key] = number
        if begins:  # in the middle of a session: orders that rest already are unknown
            line = int(rows.numbers[0])
            self._report.lost(rows.source, Lost(line, instrument.symbol, "no_snapshot"))
        self._check_sequence(instrument.symbol, rows, types)
        clear = types == RESET
        unpriced = clear | (rows["price"] == UNDEFINED_PRICE)
        prices = np.where(unpriced, 0, at_scale(rows["price"], self._options.price_scale)[0])
        sizes = rows["size"].astype(np.int64) * 10**self._options.size_scale
        yield book_chunk(
            instrument,
            rows.times_ns,
            exchange_ns=rows.exchange_ns,
            native_seq=rows["sequence"],
            event_type=types,
            side=_SIDES[rows["side"]],
            exec_type=rows["action"],
            order_id=np.where(clear, 0, rows["order_id"]),
            price=prices,
            qty=np.where(clear, 0, sizes),
            after_reset=begins,
            lines=rows.numbers,
            source=rows.source.index,
        )


def _priced(
    rows: DbnRows,
    needed: _Array,
    scale: int,
    report: Report,
    symbol: str,
    *,
    of_book: bool = True,
) -> DbnRows:
    """The rows, except those of `needed` whose price is missing or does not fit the scale."""
    absent = needed & (rows["price"] == UNDEFINED_PRICE)
    rows = rows.without(absent, report, "no price", symbol=symbol, of_book=of_book)
    needed = needed[~absent]
    _, fits = at_scale(rows["price"], scale)
    why = "a price that does not fit the scale"
    return rows.without(needed & ~fits, report, why, symbol=symbol, of_book=of_book)


class LevelBooks:
    """mbp-1 and mbp-10: each record has the current best levels, and becomes a snapshot.

    Of the records of one event only the last one counts: the others show an intermediate book.
    """

    def __init__(self, options: ImportOptions, report: Report) -> None:
        self._options = options
        self._report = report
        self._held: dict[tuple[str, str, int], tuple[Instrument, DbnRows]] = {}

    def chunks(self, instrument: Instrument, rows: DbnRows) -> Iterator[Chunk]:
        """The snapshots that the next rows of an instrument complete."""
        if not len(rows):
            return
        depth = rows["levels"].shape[1]
        key = (instrument.venue, instrument.symbol, depth)
        held = self._held.pop(key, None)
        if held is not None:
            rows = DbnRows.concatenated([held[1], rows])
        complete = (rows["flags"] & LAST) != 0
        for name in ("ts_recv", "ts_event", "sequence"):
            complete[:-1] |= rows[name][1:] != rows[name][:-1]
        if not complete[-1]:
            self._held[key] = (instrument, rows.where(np.arange(len(rows)) == len(rows) - 1))
        if within := int((~complete[:-1]).sum()):
            self._report.skipped["within an event"] += within
        yield from self._snapshots(instrument, depth, rows.where(complete))

    def finish(self) -> Iterator[Chunk]:
        """The snapshots of the last rows."""
        held, self._held = self._held, {}
        for (_, _, depth), (instrument, rows) in held.items():
            yield from self._snapshots(instrument, depth, rows)

    def _snapshots(self, instrument: Instrument, depth: int, rows: DbnRows) -> Iterator[Chunk]:
        from tapewire.protocol.market import BOOK_EVENT

        scale = self._options.price_scale
        fits = np.ones(len(rows), bool)
        for name in ("bid_price", "ask_price"):
            prices = rows["levels"][name]
            fits &= (at_scale(prices, scale)[1] | (prices == UNDEFINED_PRICE)).all(axis=1)
        symbol = instrument.symbol
        why = "a price that does not fit the scale"
        rows = rows.without(~fits, self._report, why, symbol=symbol)
        why = f"{OUT_OF_ORDER}, or incomplete"
        rows = rows.without(_not_books(rows), self._report, why, symbol=symbol)
        if not len(rows):
            return
        table = np.zeros((len(rows), depth, 2, 8), np.int64)  # l2_groups.hpp, LevelRow
        table[..., 0] = rows.times_ns[:, None, None]
        table[..., 1] = rows.exchange_ns[:, None, None]
        table[..., 2] = rows["sequence"][:, None, None]
        table[..., 3] = _WHOLE
        table[..., 7] = rows.numbers[:, None, None]
        for side, name in enumerate(("bid", "ask")):
            prices, sizes = rows["levels"][f"{name}_price"], rows["levels"][f"{name}_size"]
            present = (prices != UNDEFINED_PRICE) & (sizes != 0)
            table[:, :, side, 4] = np.where(present, side, -1)
            table[:, :, side, 5] = at_scale(prices, scale)[0]
            table[:, :, side, 6] = sizes.astype(np.int64) * 10**self._options.size_scale
        grouper = L2Grouper(
            instrument.venue_id,
            instrument.market_id,
            instrument.price_scale,
            instrument.size_scale,
        )
        grouper.add(table.reshape(-1, 8))
        grouper.finish()
        times_ns, payloads, lines, _ = grouper.take()
        yield Chunk(
            instrument.venue,
            instrument.symbol,
            f"book_snapshot_{depth}",
            BOOK_EVENT,
            times_ns,
            payloads,
            lines,
            rows.source.index,
        )


def _not_books(rows: DbnRows) -> _Array:
    """Which records have levels that are not in order, or a price without a size or vice versa."""
    wrong = np.zeros(len(rows), bool)
    for side in ("bid", "ask"):
        prices, sizes = rows["levels"][f"{side}_price"], rows["levels"][f"{side}_size"]
        present = prices != UNDEFINED_PRICE
        wrong |= (present != (sizes != 0)).any(axis=1)
        wrong |= out_of_order(prices, present, bids=side == "bid")
    return wrong


def trades_of(instrument: Instrument, rows: DbnRows, report: Report) -> Iterator[Chunk]:
    """The trades in rows of any type; their side is the aggressor's."""
    rows = rows.where(are_trades(rows))
    nothing = (rows["size"] == 0) | (rows["size"] == UNDEFINED_SIZE)
    symbol = instrument.symbol
    rows = rows.without(nothing, report, "size of a trade is zero", symbol=symbol, of_book=False)
    needed = np.ones(len(rows), bool)
    rows = _priced(rows, needed, instrument.price_scale, report, symbol, of_book=False)
    if len(rows):
        yield trades_chunk(
            instrument,
            rows.times_ns,
            exchange_ns=rows.exchange_ns,
            price=at_scale(rows["price"], instrument.price_scale)[0],
            size=rows["size"].astype(np.int64) * 10**instrument.size_scale,
            trade_id=rows["sequence"],
            maker=_MAKERS[rows["side"]],
            order_id=0,
            lines=rows.numbers,
            source=rows.source.index,
        )
