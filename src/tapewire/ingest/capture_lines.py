"""The base class of importers of captures: one message in each line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tapewire.book.gaps import Gap
from tapewire.bus.names import check_name
from tapewire.errors import CorruptSource, InvalidMessage, InvalidName, InvalidOption
from tapewire.ingest import source
from tapewire.ingest.book_turns import BookTurns
from tapewire.ingest.import_log import SEGMENT_BYTES
from tapewire.ingest.importer import Chunk, Importer, ImportOptions
from tapewire.ingest.losses import Lost
from tapewire.ingest.pending import Pending
from tapewire.ingest.registry import IMPORTERS
from tapewire.ingest.report import Report
from tapewire.ingest.source import SourceFile
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import (
    BOOK_EVENT,
    VENUE_RAW,
    Maker,
    Quote,
    TradeTick,
    reset,
    scaled,
    scaled_levels,
)

__all__ = [
    "BadRow",
    "CaptureOptions",
    "LineImporter",
    "check_size",
    "integer",
    "levels",
    "parse_json",
]

MAX_PAYLOAD_BYTES = SEGMENT_BYTES - 128
MAX_TIME_NS = 2**63 - 1

_decode = json.JSONDecoder().decode  # of text: json.loads guesses the encoding of bytes
NO_FIT = "a value does not fit"
WRONG_TYPE = "a field is missing or of another type"


CHECKED_LINES = 1000  # of each file, until one shows which market it belongs to


class BadRow(Exception):
    """A row that cannot be imported: `why`, one of few reasons, and `detail`."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why, detail)
        self.why = why
        self.detail = detail


_WRONG_SHAPE = (KeyError, TypeError, AttributeError, IndexError, ValueError)
_BAD_LINE = (BadRow, InvalidName, InvalidMessage, OverflowError, *_WRONG_SHAPE)


@dataclass(frozen=True, kw_only=True)
class CaptureOptions(ImportOptions):
    """Options of importers of captures.

    Attributes:
        check_market: Whether a capture of another venue or market is refused before anything is
            written.
    """

    check_market: bool = True

    def of_records(self) -> dict[str, Any]:
        """The options that decide which records an import makes."""
        options = super().of_records()
        del options["check_market"]
        return options


class LineImporter(Importer):
    """An importer of files with one message in each line.

    A subclass defines `name`, `venue` and `message`, which parses a line completely before it adds
    a record, so that a bad row adds none.
    """

    name: ClassVar[str]
    venue: ClassVar[str]
    Options: ClassVar[type[ImportOptions]] = CaptureOptions

    def __init__(self, options: CaptureOptions) -> None:
        self.options = options
        self._wanted = frozenset(options.symbols)
        self._pending = Pending(unique=True)
        self._full = False
        self._place = (0, 0)  # line and index of the file
        self._turns: BookTurns[Any] = BookTurns()
        # Which book the line can change, as far as it is known: None means any of the file.
        self._symbol: str | None = None
        self._of_book = True
        self._instruments: dict[tuple[str, str], Instrument] = {}
        self._breaks: list[tuple[Instrument, Gap, bytes]] = []
        self.report: Report

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.options!r})"

    def formats_of(self, line: bytes) -> frozenset[str]:
        """The formats that a line can belong to; empty if it does not show that.

        May raise what `message` may raise: such a line shows nothing.
        """
        return frozenset()

    def check(self, files: Sequence[SourceFile]) -> None:
        """Check that the first lines of each file belong to this format."""
        if not self.options.check_market:
            return
        for file in files:
            formats = self._formats_of_file(file)
            if formats and self.name not in formats:
                known = " or ".join(sorted(formats & IMPORTERS.keys()))
                remedy = f"import it as {known}" if known else "no importer supports that market"
                raise InvalidOption(
                    f"the capture belongs to another market: format={self.name}, "
                    f"content={', '.join(sorted(formats))}",
                    path=os.fspath(file.path),
                    hint=f"{remedy}; check_market=False (--option check_market=false) imports it "
                    f"as {self.name} all the same",
                )

    def _formats_of_file(self, file: SourceFile) -> frozenset[str]:
        """Those of the first line that shows them."""
        try:
            with contextlib.closing(file.lines()) as lines:
                for _, line in itertools.islice(lines, CHECKED_LINES):
                    with contextlib.suppress(*_BAD_LINE):
                        formats = self.formats_of(line)
                        if formats:
                            return formats
        except CorruptSource:
            pass  # raised again when the lines before the damage were imported
        return frozenset()

    def message(self, line: bytes) -> None:
        """Import one line with `add`, or raise `BadRow`, a `TypeError` or the like."""
        raise NotImplementedError

    def in_turn(self, instrument: Instrument, timestamp_ns: int, what: Any) -> None:
        """Add the records of what was passed to `wait`; its values are checked, so it is valid."""
        raise NotImplementedError

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of `files`."""
        self.report = report
        for file in files:
            yield from self._pending.take()  # a chunk is of one file
            try:
                for number, line in file.lines():
                    report.rows += 1
                    self._place = (number, file.index)
                    why = self._try(line)
                    if why is not None:
                        symbol, of_book = self._symbol, self._of_book
                        report.bad(file, number, line, *why, symbol=symbol, of_book=of_book)
                    yield from self._due()
            except CorruptSource:
                yield from self._rest()
                raise
        yield from self._rest()

    def _due(self) -> Iterator[Chunk]:
        """Add the messages whose turn it is; the chunks that are complete."""
        while True:
            if self._breaks:
                yield from self._pending.take()
                self._write_breaks()
            elif self._full:
                yield from self._pending.take()
                self._full = False
            turn = self._turns.take(self._place)
            if turn is None:
                return
            here, self._place = self._place, turn.place
            self.in_turn(turn.instrument, turn.timestamp_ns, turn.what)
            self._place = here

    def _rest(self) -> Iterator[Chunk]:
        """What still waits: no more lines come."""
        self._turns.end()
        yield from self._due()
        yield from self._pending.take()

    def _try(self, line: bytes) -> tuple[str, str] | None:
        """Import a line; returns the reason and the details if it is bad."""
        self._symbol, self._of_book = None, True
        if len(line) >= source.MAX_LINE_BYTES:
            return "the line is too long", f"max={source.MAX_LINE_BYTES - 1} bytes"
        if self.options.keep_wire and len(line) > MAX_PAYLOAD_BYTES:
            return NO_FIT, f"with keep_wire: bytes={len(line)}, max={MAX_PAYLOAD_BYTES}"
        try:
            self.message(line)
        except BadRow as error:
            return error.why, error.detail
        except InvalidName as error:
            return "not a valid name", error.message
        except (InvalidMessage, OverflowError) as error:
            return NO_FIT, str(error)
        except _WRONG_SHAPE as error:
            # Raised by code that accesses the fields of a message of another shape.
            return WRONG_TYPE, f"{type(error).__name__}: {error}"
        return None

    # Called by `message`.

    def add(
        self, instrument: Instrument, stream: str, type_id: int, timestamp_ns: int, payload: bytes
    ) -> None:
        """Add a record to its stream."""
        check_size(payload)
        if self._pending.add(
            instrument.venue,
            instrument.symbol,
            stream,
            type_id,
            timestamp_ns,
            payload,
            *self._place,
        ):
            self._full = True

    def wait(
        self,
        instrument: Instrument,
        timestamp_ns: int,
        ids: tuple[int, int],
        what: Any,
        *,
        snapshot: bool = False,
    ) -> None:
        """Pass a message of a book to `in_turn` when those before it have come.

        Args:
            instrument: The instrument.
            timestamp_ns: When the message arrived.
            ids: The last update id of the message before it and its own; 0 without ids.
            what: The message; check it first, since `in_turn` cannot reject it.
            snapshot: Whether it is a complete book.
        """
        self._turns.add(instrument, timestamp_ns, self._place, ids, what, snapshot=snapshot)

    def not_of_book(self) -> None:
        """Declare that the line does not change a book, whether it is valid or not."""
        self._of_book = False

    def lost(self, instrument: Instrument, cause: str) -> None:
        """Declare that something is missing from a book before the line."""
        line, source = self._place
        self.report.lost_at(source, Lost(line, instrument.symbol, cause))

    def wanted(self, venue: str, symbol: Any) -> Instrument | None:
        """The instrument of a symbol, added if it is new; None if the symbol is not imported."""
        instrument = self._instruments.get((venue, symbol))
        if instrument is not None:
            self._symbol = instrument.symbol
            return instrument
        check_name("symbol", symbol)
        self._symbol = symbol
        if self._wanted and symbol not in self._wanted:
            self.report.skip("another symbol")
            return None
        instrument = self.report.instrument(
            Instrument.of(
                venue,
                symbol,
                price_scale=self.options.price_scale,
                size_scale=self.options.size_scale,
                rules="continuous",
            )
        )
        self._instruments[venue, symbol] = instrument
        return instrument

    def trade(
        self,
        instrument: Instrument,
        *,
        price: str,
        size: str,
        trade_id: int,
        buyer_is_maker: bool,
        exchange_ns: int,
    ) -> bytes:
        """A `TradeTick` as bytes."""
        message = TradeTick(
            timestamp_ns=exchange_ns,
            price=scaled(price, instrument.price_scale),
            size=_size(size, instrument),
            trade_id=trade_id,
            buyer_order_id=0,
            seller_order_id=0,
            symbol_hash=instrument.symbol_hash,
            market_id=instrument.market_id,
            price_scale=instrument.price_scale,
            size_scale=instrument.size_scale,
            is_buyer_maker=Maker.BUYER if buyer_is_maker else Maker.SELLER,
        )
        return bytes(message)

    def quote(
        self,
        instrument: Instrument,
        *,
        bid: tuple[str, str],
        ask: tuple[str, str],
        exchange_ns: int,
    ) -> bytes:
        """A `Quote` as bytes; `bid` and `ask` are price and size."""
        message = Quote(
            timestamp_ns=exchange_ns,
            bid_price=scaled(bid[0], instrument.price_scale),
            bid_size=_size(bid[1], instrument),
            ask_price=scaled(ask[0], instrument.price_scale),
            ask_size=_size(ask[1], instrument),
            symbol_hash=instrument.symbol_hash,
            market_id=instrument.market_id,
            price_scale=instrument.price_scale,
            size_scale=instrument.size_scale,
        )
        return bytes(message)

    def keep_wire(self, instrument: Instrument, timestamp_ns: int, wire: bytes) -> None:
        """Add the venue's own bytes if the option `keep_wire` is set."""
        if self.options.keep_wire:
            self.add(instrument, "raw", VENUE_RAW, timestamp_ns, wire)

    def break_book(
        self, instrument: Instrument, timestamp_ns: int, kind: str, cause: str, payload: bytes
    ) -> None:
        """The book differs from the venue's: add a gap to the ledger and a reset to the log.

        `payload` is the event that shows it, written after the reset: with it the book would
        already be wrong.
        """
        gap = Gap(
            kind=kind,
            venue=instrument.venue,
            symbol=instrument.symbol,
            stream="book",
            first=0,
            last=0,
            seq=0,  # set by the framework
            timestamp_ns=timestamp_ns,
            cause=cause,
            action="reset; not trusted until the next snapshot",
        )
        self._breaks.append((instrument, gap, payload))

    def _write_breaks(self) -> None:
        for instrument, gap, payload in self._breaks:
            self.report.gap(gap)
            time_ns = gap.timestamp_ns
            self.add(instrument, "book", BOOK_EVENT, time_ns, reset(instrument, time_ns))
            self.add(instrument, "book", BOOK_EVENT, time_ns, payload)
        self._breaks.clear()


def check_size(payload: bytes) -> None:
    """Raise `BadRow` if a record cannot hold the payload."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise BadRow(NO_FIT, f"bytes={len(payload)}, max={MAX_PAYLOAD_BYTES}")


def levels(rows: Any, instrument: Instrument) -> np.ndarray[Any, Any]:
    """Levels as text, ``[price, size, …]`` each, as integers at the instrument's scales."""
    made: np.ndarray[Any, Any] = scaled_levels(rows, instrument.price_scale, instrument.size_scale)
    if (made[:, 1] < 0).any():
        raise BadRow(NO_FIT, "a size below zero")
    return made


def _size(text: str, instrument: Instrument) -> int:
    size: int = scaled(text, instrument.size_scale)
    if size < 0:
        raise BadRow(NO_FIT, f"a size below zero: {text!r:.80}")
    return size


def parse_json(text: bytes) -> Any:
    """The value of a JSON text; `BadRow` if it is invalid."""
    try:
        return _decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadRow("not JSON", str(error)) from None


def integer(value: Any, most: int = 2**64 - 1) -> int:
    """A field that must be an integer; `BadRow` otherwise.

    Example:
        >>> integer(7)
        7
    """
    if type(value) is not int or not 0 <= value <= most:
        raise BadRow(WRONG_TYPE, f"not an integer from 0 to {most}: {value!r:.80}")
    return value
