"""Tardis CSV files: incremental_book_L2, trades, quotes, book_snapshot_N.

The data type of a file is detected from its columns, in any order; unknown columns are skipped.
Times are microseconds; ingest time is `local_timestamp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest._parsers import MISSING, L2Grouper
from tapewire.ingest.file_options import FileOptions
from tapewire.ingest.importer import Chunk, Importer, ImportOptions
from tapewire.ingest.level_order import OUT_OF_ORDER, out_of_order
from tapewire.ingest.losses import Lost
from tapewire.ingest.symbols import directory_name, known_instrument
from tapewire.ingest.tables import RowOwner, TableBlock, TableColumn, csv_blocks, csv_header

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["Tardis"]

BOOK_EVENT = 0x1000
_UPDATE_OR_SNAPSHOT = ("false", "true")
_NO_NAME = "invalid name of a market, or the same name as another market"
_WHOLE = 2  # l2_groups.hpp, Belongs
_LEVEL = re.compile(r"(asks|bids)\[(\d{1,4})\]\.(price|amount)")
_Array = np.ndarray[Any, Any]


class Tardis(Importer):
    """Importer of Tardis CSV files."""

    name: ClassVar[str] = "tardis"
    venue: ClassVar[str] = "of the column `exchange`"
    Options: ClassVar[type[FileOptions]] = FileOptions

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._instruments: dict[tuple[bytes, bytes], Instrument | None] = {}
        self._owners: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of the files, one file after the other."""
        for source in files:
            kind = _kind_of(csv_header(source), source)
            columns = [*_common(), *kind.columns(self._options)]
            reader = kind(self._options)
            yield from reader.chunks(self._by_market(source, columns, reader, report))

    def _by_market(
        self, source: SourceFile, columns: list[TableColumn], reader: _Reader, report: Report
    ) -> Iterator[tuple[Instrument, TableBlock]]:
        """The rows of each instrument in each block, in order."""
        amounts = [c.name for c in columns if c.name.endswith("amount")]
        of_book = any(c.name == "is_snapshot" or _LEVEL.fullmatch(c.name) for c in columns)
        owner = RowOwner("symbol", directory_name, of_book)
        for parsed in csv_blocks(source, columns, report, owner):
            early = (parsed["timestamp"] < 0) | (parsed["local_timestamp"] < 0)
            block = parsed.without(early, report, "a time before 1970")
            for name in amounts:
                below = (block[name] < 0) & (block[name] != MISSING)
                block = block.without(below, report, "an amount below zero")
            block = reader.valid(block, report)
            exchange, symbol = block["exchange"], block["symbol"]
            for code in _in_order(exchange * len(block.texts) + symbol):
                pair = divmod(code, len(block.texts))
                mask = (exchange == pair[0]) & (symbol == pair[1])
                rows = block if mask.all() else block.where(mask)
                key = (block.texts[pair[0]], block.texts[pair[1]])
                if key not in self._instruments:
                    self._instruments[key] = self._instrument(*key, report)
                instrument = self._instruments[key]
                if instrument is not None:
                    reader.check(instrument.symbol, rows, report)
                    yield instrument, rows
                elif self._wanted(key[1]):
                    # Of another market: no book of this import is changed by them.
                    rows.without(np.ones(len(rows), bool), report, _NO_NAME, of_book=False)
                else:
                    report.skipped["another symbol"] += len(rows)

    def _wanted(self, symbol: bytes) -> bool:
        wanted = self._options.symbols
        return (
            not wanted
            or symbol.decode(errors="replace") in wanted
            or directory_name(symbol) in wanted
        )

    def _instrument(self, exchange: bytes, symbol: bytes, report: Report) -> Instrument | None:
        from tapewire.protocol.instruments import Instrument

        venue, name = directory_name(exchange), directory_name(symbol)
        if venue is None or name is None or not self._wanted(symbol):
            return None
        # A/B and A:B have the same directory name: the first one gets it.
        if self._owners.setdefault((venue, name), (exchange, symbol)) != (exchange, symbol):
            return None
        options = self._options
        made = Instrument.of(
            venue, name, options.price_scale, options.size_scale, rules="continuous"
        )
        return known_instrument(report, made, options)


def _common() -> list[TableColumn]:
    return [
        TableColumn("exchange", "text"),
        TableColumn("symbol", "text"),
        TableColumn("timestamp", scale=3),
        TableColumn("local_timestamp", scale=3),
    ]


def _in_order(codes: _Array) -> list[int]:
    """The distinct values, in the order of their first occurrence."""
    values, first = np.unique(codes, return_index=True)
    return [int(values[i]) for i in np.argsort(first)]


_Rows = Iterator[tuple["Instrument", TableBlock]]


class _Reader:
    """Reads the rows of one data type; made for each file."""

    def __init__(self, options: ImportOptions) -> None:
        pass

    def valid(self, block: TableBlock, report: Report) -> TableBlock:
        """The valid rows of all markets; the others are reported as bad."""
        return block

    def check(self, symbol: str, block: TableBlock, report: Report) -> None:
        """Report what the next rows of a market show to be missing."""

    def chunks(self, rows: _Rows) -> Iterator[Chunk]:
        """The records of these rows."""
        raise NotImplementedError


class _Levels(_Reader):
    """Levels to events of a book: common code of incremental_book_L2 and book_snapshot_N."""

    stream = "book"
    many_rows = True  # make one event, if they are of one moment

    def __init__(self, options: ImportOptions) -> None:
        self._groupers: dict[str, tuple[Instrument, L2Grouper]] = {}
        self._source = 0  # a reader is made for each file

    def chunks(self, rows: _Rows) -> Iterator[Chunk]:
        for instrument, block in rows:
            key = f"{instrument.venue}:{instrument.symbol}"
            if key not in self._groupers:
                grouper = L2Grouper(
                    instrument.venue_id,
                    instrument.market_id,
                    instrument.price_scale,
                    instrument.size_scale,
                )
                self._groupers[key] = (instrument, grouper)
            self._source = block.source.index
            grouper = self._groupers[key][1]
            grouper.add(self.level_rows(block))
            yield from self._take(instrument, grouper)
        for instrument, grouper in self._groupers.values():
            grouper.finish()
            yield from self._take(instrument, grouper)

    def _take(self, instrument: Instrument, grouper: L2Grouper) -> Iterator[Chunk]:
        timestamps_ns, payloads, lines, last_lines = grouper.take()
        if payloads:
            yield Chunk(
                instrument.venue,
                instrument.symbol,
                self.stream,
                BOOK_EVENT,
                timestamps_ns,
                payloads,
                lines,
                sources=self._source,
                last_lines=last_lines if self.many_rows else None,
                next_lines={self._source: grouper.open_line} if grouper.open_line else {},
            )

    def level_rows(self, block: TableBlock) -> _Array:
        raise NotImplementedError


class _Incremental(_Levels):
    """incremental_book_L2: the rows of one moment are one event.

    Rows are in the order of their local time, and a snapshot begins with the first row of a moment.
    """

    def __init__(self, options: ImportOptions) -> None:
        super().__init__(options)
        self._latest = 0
        self._moments: dict[str, _Array] = {}  # of each symbol's last row

    def valid(self, block: TableBlock, report: Report) -> TableBlock:
        times = block["local_timestamp"]
        back = np.diff(times, prepend=self._latest) < 0
        for line in block.line[back].tolist():
            report.lost(block.source, Lost(line, None, "out_of_order"))
        if len(times):
            self._latest = int(times[-1])
        return block

    def check(self, symbol: str, block: TableBlock, report: Report) -> None:
        names = ("local_timestamp", "timestamp", "is_snapshot")
        moments = np.column_stack([block[name] for name in names])
        before = np.vstack([self._moments.get(symbol, moments[0])[None], moments[:-1]])
        self._moments[symbol] = moments[-1]
        # A snapshot that begins within a moment lacks the rows of it that are marked as changes.
        begins = (moments[:, 2] == 1) & (before[:, 2] == 0)
        begins &= (moments[:, :2] == before[:, :2]).all(axis=1)
        for line in block.line[begins].tolist():
            report.lost(block.source, Lost(line, symbol, "damaged"))

    @staticmethod
    def columns(options: ImportOptions) -> list[TableColumn]:
        return [
            TableColumn("is_snapshot", "word", words=_UPDATE_OR_SNAPSHOT),
            TableColumn("side", "word", words=("bid", "ask")),
            TableColumn("price", scale=options.price_scale),
            TableColumn("amount", scale=options.size_scale),
        ]

    def level_rows(self, block: TableBlock) -> _Array:
        rows = np.zeros((len(block), 8), np.int64)
        rows[:, 0] = block["local_timestamp"]
        rows[:, 1] = block["timestamp"]
        rows[:, 3] = block["is_snapshot"]
        rows[:, 4] = block["side"]
        rows[:, 5] = block["price"]
        rows[:, 6] = block["amount"]
        rows[:, 7] = block.line
        return rows


class _Snapshots(_Levels):
    """book_snapshot_N: each row is a complete book of N levels."""

    many_rows = False

    def __init__(self, options: ImportOptions, depth: int) -> None:
        super().__init__(options)
        self.depth = depth
        self.stream = f"book_snapshot_{depth}"

    def valid(self, block: TableBlock, report: Report) -> TableBlock:
        for side in ("bids", "asks"):
            names = [f"{side}[{i}]." for i in range(self.depth)]
            prices = np.column_stack([block[f"{name}price"] for name in names])
            amounts = np.column_stack([block[f"{name}amount"] for name in names])
            present = prices != MISSING
            incomplete = (present != (amounts != MISSING)) | (amounts == 0)
            unordered = out_of_order(prices, present, bids=side == "bids")
            block = block.without(
                incomplete.any(axis=1) | unordered, report, f"{OUT_OF_ORDER}, or incomplete"
            )
        return block

    def level_rows(self, block: TableBlock) -> _Array:
        rows = np.zeros((len(block), self.depth, 2, 8), np.int64)
        rows[..., 0] = block["local_timestamp"][:, None, None]
        rows[..., 1] = block["timestamp"][:, None, None]
        rows[..., 3] = _WHOLE
        rows[..., 7] = block.line[:, None, None]
        for i in range(self.depth):
            for side, name in enumerate(("bids", "asks")):
                price, amount = block[f"{name}[{i}].price"], block[f"{name}[{i}].amount"]
                present = (price != MISSING) & (amount != MISSING)
                rows[:, i, side, 4] = np.where(present, side, -1)
                rows[:, i, side, 5] = price
                rows[:, i, side, 6] = amount
        return rows.reshape(-1, 8)


class _Trades(_Reader):
    """trades: `id` as an integer, or its XXH64 if it is not one."""

    @staticmethod
    def columns(options: ImportOptions) -> list[TableColumn]:
        return [
            TableColumn("id", "id"),
            TableColumn("side", "word", words=("buy", "sell", "unknown")),  # of the taker
            TableColumn("price", scale=options.price_scale),
            TableColumn("amount", scale=options.size_scale),
        ]

    def chunks(self, rows: _Rows) -> Iterator[Chunk]:
        from tapewire.protocol.market import TradeTick

        for instrument, block in rows:
            ticks = np.zeros(len(block), TradeTick.dtype)
            ticks["timestamp_ns"] = block["timestamp"]
            ticks["price"] = block["price"]
            ticks["size"] = block["amount"]
            ticks["trade_id"] = block["id"].astype(np.uint64)
            ticks["is_buyer_maker"] = block["side"]
            _name(ticks, instrument)
            yield _chunk(instrument, "trades", TradeTick.type_id, block, ticks)


class _Quotes(_Reader):
    """quotes: the best bid and ask; a missing side has price and size 0."""

    @staticmethod
    def columns(options: ImportOptions) -> list[TableColumn]:
        return [
            TableColumn("ask_amount", scale=options.size_scale, optional=True),
            TableColumn("ask_price", scale=options.price_scale, optional=True),
            TableColumn("bid_price", scale=options.price_scale, optional=True),
            TableColumn("bid_amount", scale=options.size_scale, optional=True),
        ]

    def chunks(self, rows: _Rows) -> Iterator[Chunk]:
        from tapewire.protocol.market import Quote

        for instrument, block in rows:
            quotes = np.zeros(len(block), Quote.dtype)
            quotes["timestamp_ns"] = block["timestamp"]
            for side in ("bid", "ask"):
                price, size = block[f"{side}_price"], block[f"{side}_amount"]
                present = (price != MISSING) & (size != MISSING)
                quotes[f"{side}_price"] = np.where(present, price, 0)
                quotes[f"{side}_size"] = np.where(present, size, 0)
            _name(quotes, instrument)
            yield _chunk(instrument, "quotes", Quote.type_id, block, quotes)


def _name(rows: _Array, instrument: Instrument) -> None:
    rows["symbol_hash"] = instrument.symbol_hash
    rows["market_id"] = instrument.market_id
    rows["price_scale"] = instrument.price_scale
    rows["size_scale"] = instrument.size_scale


def _chunk(
    instrument: Instrument, stream: str, type_id: int, block: TableBlock, payloads: _Array
) -> Chunk:
    times = np.ascontiguousarray(block["local_timestamp"])
    source = block.source.index
    return Chunk(
        instrument.venue,
        instrument.symbol,
        stream,
        type_id,
        times,
        payloads,
        block.line,
        source,
        unique=True,
    )


class _Kind:
    """One data type: its columns and its reader."""

    def __init__(
        self,
        columns: Callable[[ImportOptions], list[TableColumn]],
        reader: Callable[[ImportOptions], _Reader],
    ) -> None:
        self.columns = columns
        self._reader = reader

    def __call__(self, options: ImportOptions) -> _Reader:
        return self._reader(options)


_KINDS = {
    "incremental_book_L2": _Kind(_Incremental.columns, _Incremental),
    "trades": _Kind(_Trades.columns, _Trades),
    "quotes": _Kind(_Quotes.columns, _Quotes),
}


def _kind_of(header: list[str], source: SourceFile) -> _Kind:
    """The data type of a header: the one with the fewest columns missing."""
    depth = 1 + max((int(found[2]) for found in map(_LEVEL.fullmatch, header) if found), default=-1)
    if depth:
        return _Kind(lambda options: _level_columns(depth, options), lambda o: _Snapshots(o, depth))
    any_options = ImportOptions()
    missing = {
        name: [c.name for c in kind.columns(any_options) if c.name not in header]
        for name, kind in _KINDS.items()
    }
    name = min(missing, key=lambda kind: len(missing[kind]))
    if missing[name]:
        raise CorruptSource(
            f"columns are missing: missing={', '.join(missing[name])} of {name}; "
            f"has={', '.join(header[:40])}",
            path=str(source.path),
            hint="give a Tardis CSV of incremental_book_L2, trades, quotes or book_snapshot_N",
        )
    return _KINDS[name]


def _level_columns(depth: int, options: ImportOptions) -> list[TableColumn]:
    scales = {"price": options.price_scale, "amount": options.size_scale}
    return [
        TableColumn(f"{side}[{i}].{what}", scale=scale, optional=True)
        for i in range(depth)
        for side in ("bids", "asks")
        for what, scale in scales.items()
    ]
