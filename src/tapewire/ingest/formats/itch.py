"""NASDAQ TotalView-ITCH 5.0: files of messages, each after its length in two bytes.

Orders become events of the book, executions and crosses also trades; the stock directory defines
the instruments. Ingest time is the exchange's: a file has no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tapewire.config import check_whole
from tapewire.errors import CorruptRecord, CorruptSource, InvalidOption
from tapewire.ingest._parsers import ItchDecoder
from tapewire.ingest.file_options import FileOptions
from tapewire.ingest.importer import Chunk, Importer
from tapewire.ingest.local_time import midnight_ns
from tapewire.ingest.losses import Lost
from tapewire.ingest.order_chunks import across, book_chunk, trades_chunk
from tapewire.ingest.symbols import directory_name, known_instrument
from tapewire.ingest.tables import pieces

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["Itch", "ItchOptions"]

_Array = np.ndarray[Any, Any]
PRICE_DECIMALS = 4

_WHY = {
    "unknown_type": "unknown message type",
    "wrong_length": "wrong length for its type",
    "cut_short": "the file ends within the message",
    "bad_time": "not a time of day",
    "bad_side": "neither a buy nor a sell",
    "bad_stock": "not the name of the stock",
    "out_of_range": "too many shares",
    "no_stock": "unknown stock",
    "known_order": "the number of another resting order",
}


@dataclass(frozen=True, kw_only=True)
class ItchOptions(FileOptions):
    """Options of the ITCH importer.

    Attributes:
        date: The trading day, ``YYYY-MM-DD``: messages contain only the time since its midnight in
            New York.
        lengths: "prefix": the two bytes before a message are its length, and it is bad if its type
            has another length. "type": the type determines the length, whatever those bytes are.
    """

    price_scale: int = PRICE_DECIMALS
    size_scale: int = 0
    date: str = ""
    lengths: str = "prefix"

    def __post_init__(self) -> None:
        super().__post_init__()
        midnight_ns(self.date)
        if self.lengths not in ("prefix", "type"):
            raise InvalidOption(f'lengths must be "prefix" or "type": lengths={self.lengths!r}')
        # Four decimals of a 32-bit price, and more as far as they fit 64 bits.
        check_whole("price_scale", self.price_scale, PRICE_DECIMALS, PRICE_DECIMALS + 9)
        check_whole("size_scale", self.size_scale, 0, 9)


class Itch(Importer):
    """Importer of ITCH 5.0 files."""

    name: ClassVar[str] = "itch"
    venue: ClassVar[str] = "nasdaq"
    Options: ClassVar[type[ItchOptions]] = ItchOptions

    def __init__(self, options: ItchOptions) -> None:
        self._options = options
        self._midnight_ns = midnight_ns(options.date)
        self._price_factor = 10 ** (options.price_scale - PRICE_DECIMALS)
        self._size_factor = 10**options.size_scale

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of the files; each is a separate session."""
        before: set[str] = set()
        for source in files:
            decoder = ItchDecoder(by_type=self._options.lengths == "type")
            out = _Stocks(self._options, decoder, report, before)
            for events in self._events(source, decoder, report):
                yield from self._by_stock(events, source, out, report)
            for kind in "SRHYLVWKJhBINO":
                if kind in decoder.counts:
                    report.skipped[f"message {kind}"] += decoder.counts[kind]
            before |= out.seen
            if decoder.unknown_orders:
                report.skipped["of an order that was never added"] += decoder.unknown_orders

    def _events(self, source: SourceFile, decoder: ItchDecoder, report: Report) -> Iterator[_Array]:
        tail = b""
        for piece in pieces(source):
            data = tail + piece
            tail = b""
            while data:
                before = decoder.messages
                try:
                    used, events, bad = decoder.decode(data, not piece)
                except CorruptRecord as error:
                    raise CorruptSource(
                        error.message, path=str(source.path), offset=error.offset, hint=error.hint
                    ) from None
                report.rows += decoder.messages - before
                for number, offset, length, fault in bad:
                    message = data[offset : offset + length]
                    symbol = _stock_of(message, fault, decoder)
                    report.bad(source, number, message, _WHY[fault], symbol=symbol)
                for number in decoder.out_of_order:
                    report.lost(source, Lost(number, None, "out_of_order"))
                yield events
                data = data[used:]
                if not used:
                    break
            tail = data

    def _by_stock(
        self, events: _Array, source: SourceFile, out: _Stocks, report: Report
    ) -> Iterator[Chunk]:
        for locate in np.unique(events["locate"]).tolist():
            out.instrument(locate)  # all before the first log: instruments.json is written once
        by_stock = events[np.argsort(events["locate"], kind="stable")]
        starts = np.flatnonzero(np.diff(by_stock["locate"].astype(np.int64), prepend=-1))
        for rows in np.split(by_stock, starts[1:]):
            if len(rows) == 0:
                continue
            instrument = out.instrument(int(rows["locate"][0]))
            if instrument is None:
                report.skipped["another symbol"] += len(rows)
                continue
            times_ns = (rows["time_ns"] + np.uint64(self._midnight_ns)).astype(np.int64)
            orders = rows["l3_type"] != 0
            if orders.any():
                first, again = out.begins(instrument.symbol)
                if first and not out.from_start:
                    line = int(rows["number"][orders][0])
                    report.lost(source, Lost(line, instrument.symbol, "no_snapshot"))
                yield self._book(instrument, rows[orders], times_ns[orders], again, source)
            printed = rows["printed"] != 0
            if printed.any():
                yield self._trades(instrument, rows[printed], times_ns[printed])

    def _book(
        self,
        instrument: Instrument,
        rows: _Array,
        times_ns: _Array,
        again: bool,
        source: SourceFile,
    ) -> Chunk:
        """Events of orders; `again`: after a reset, because orders end with their session."""
        from tapewire.protocol.market import L3Flags, L3Type

        traded = rows["l3_type"] == L3Type.TRADE
        return book_chunk(
            instrument,
            times_ns,
            exchange_ns=times_ns,
            native_seq=rows["number"],
            event_type=rows["l3_type"],
            # The side of a trade is the aggressor's.
            side=np.where(traded, across(rows["side"]), rows["side"]),
            exec_type=rows["message"],
            order_id=rows["order_id"],
            price=rows["price"] * self._price_factor,
            qty=rows["size"] * self._size_factor,
            flags=rows["auction"] * int(L3Flags.OPENING_AUCTION),
            after_reset=again,
            lines=rows["number"].astype(np.int64),
            source=source.index,
        )

    def _trades(self, instrument: Instrument, rows: _Array, times_ns: _Array) -> Chunk:
        return trades_chunk(
            instrument,
            times_ns,
            exchange_ns=times_ns,
            price=rows["price"] * self._price_factor,
            size=rows["size"] * self._size_factor,
            trade_id=rows["match"],
            maker=rows["maker"],
            order_id=rows["order_id"],
        )


def _stock_of(message: bytes, fault: str, decoder: ItchDecoder) -> str | None:
    """The stock of a bad message, if its locate code shows it."""
    if fault in ("unknown_type", "bad_stock", "no_stock", "cut_short") or len(message) < 5:
        return None
    return directory_name(decoder.stock(int.from_bytes(message[3:5], "big")).encode())


class _Stocks:
    """The instruments of a file's locate codes.

    Attributes:
        seen: Stocks with events of orders in this file.
    """

    def __init__(
        self, options: ItchOptions, decoder: ItchDecoder, report: Report, before: set[str]
    ) -> None:
        self._options = options
        self._decoder = decoder
        self._report = report
        self._known: dict[int, Instrument | None] = {}
        self._before = before
        self.seen: set[str] = set()

    @property
    def from_start(self) -> bool:
        """Whether the file begins with the session, before any order."""
        return self._decoder.from_start

    def begins(self, symbol: str) -> tuple[bool, bool]:
        """Whether these are the stock's first orders in this session, and there was another one."""
        first = symbol not in self.seen
        self.seen.add(symbol)
        return first, first and symbol in self._before

    def instrument(self, locate: int) -> Instrument | None:
        """The instrument of a locate code, or None if it is not imported."""
        from tapewire.protocol.instruments import Instrument

        if locate not in self._known:
            stock, options = self._decoder.stock(locate), self._options
            name = directory_name(stock.encode())
            known = None
            if name and (
                not options.symbols or stock in options.symbols or name in options.symbols
            ):
                made = Instrument.of(
                    Itch.venue,
                    name,
                    options.price_scale,
                    options.size_scale,
                    rules="continuous",
                    book_mode="l3",
                )
                known = known_instrument(self._report, made, options)
            self._known[locate] = known
        return self._known[locate]
