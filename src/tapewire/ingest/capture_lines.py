"""What importers of captures share: a message a line, and a bad one is kept aside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tapewire.book.gaps import Gap
from tapewire.bus.names import check_name
from tapewire.errors import CorruptSource, InvalidMessage, InvalidName
from tapewire.ingest.import_log import SEGMENT_BYTES
from tapewire.ingest.importer import Chunk, ImportOptions
from tapewire.ingest.pending import Pending
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

__all__ = ["BadRow", "LineImporter", "levels", "parse_json", "whole"]

MAX_PAYLOAD_BYTES = SEGMENT_BYTES - 128
MAX_TIME_NS = 2**63 - 1

_decode = json.JSONDecoder().decode  # of text: json.loads guesses the encoding of bytes
NO_FIT = "a value does not fit"
WRONG_TYPE = "a field is missing or of another type"


class BadRow(Exception):
    """A row that cannot be imported: `why`, one of few reasons, and `detail`."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why, detail)
        self.why = why
        self.detail = detail


class LineImporter:
    """An importer of files with a message in each line; a subclass says what a line holds.

    A subclass defines `name`, `venue` and `message`; that parses a line whole before it adds a
    record of it, so that a bad row leaves nothing.
    """

    name: ClassVar[str]
    venue: ClassVar[str]
    Options: ClassVar[type[ImportOptions]] = ImportOptions

    def __init__(self, options: ImportOptions) -> None:
        self.options = options
        self._wanted = frozenset(options.symbols)
        self._pending = Pending()
        self._full = False
        self._instruments: dict[tuple[str, str], Instrument] = {}
        self._breaks: list[tuple[Instrument, Gap]] = []
        self.report: Report

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.options!r})"

    def message(self, line: bytes) -> None:
        """Import one line by `add`, or raise `BadRow`; a `TypeError` or the like is one too."""
        raise NotImplementedError

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of `files`."""
        self.report = report
        for file in files:
            try:
                for number, line in file.lines():
                    report.rows += 1
                    why = self._try(line)
                    if why is not None:
                        report.bad(file, number, line, *why)
                    if self._breaks:
                        yield from self._pending.take()
                        self._tell_breaks()
                    elif self._full:
                        yield from self._pending.take()
                        self._full = False
            except CorruptSource:
                yield from self._pending.take()
                raise
        yield from self._pending.take()

    def _try(self, line: bytes) -> tuple[str, str] | None:
        """Imports a line; what is wrong with it otherwise."""
        if self.options.keep_wire and len(line) > MAX_PAYLOAD_BYTES:
            return NO_FIT, f"to be kept: bytes={len(line)}, max={MAX_PAYLOAD_BYTES}"
        try:
            self.message(line)
        except BadRow as error:
            return error.why, error.detail
        except InvalidName as error:
            return "not a name for a folder", error.message
        except (InvalidMessage, OverflowError) as error:
            return NO_FIT, str(error)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            # What a message of another shape makes of code that takes its fields as they come.
            return WRONG_TYPE, f"{type(error).__name__}: {error}"
        return None

    # What `message` calls.

    def add(
        self, instrument: Instrument, stream: str, type_id: int, timestamp_ns: int, payload: bytes
    ) -> None:
        """Put a record behind those of its log."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BadRow(NO_FIT, f"bytes={len(payload)}, max={MAX_PAYLOAD_BYTES}")
        if self._pending.add(
            instrument.venue, instrument.symbol, stream, type_id, timestamp_ns, payload
        ):
            self._full = True

    def wanted(self, venue: str, symbol: Any) -> Instrument | None:
        """The instrument of a symbol, made known when it is new; None when it was not asked for."""
        instrument = self._instruments.get((venue, symbol))
        if instrument is not None:
            return instrument
        check_name("symbol", symbol)
        if self._wanted and symbol not in self._wanted:
            self.report.skip("another symbol")
            return None
        instrument = self.report.instrument(
            Instrument.of(
                venue,
                symbol,
                price_scale=self.options.price_scale,
                size_scale=self.options.size_scale,
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
        """The venue's own bytes, where asked for."""
        if self.options.keep_wire:
            self.add(instrument, "raw", VENUE_RAW, timestamp_ns, wire)

    def break_book(self, instrument: Instrument, timestamp_ns: int, kind: str, cause: str) -> None:
        """The book is not the venue's any more: a gap in the ledger, and a reset in the tape."""
        gap = Gap(
            kind=kind,
            venue=instrument.venue,
            symbol=instrument.symbol,
            stream="book",
            first=0,
            last=0,
            seq=0,  # the framework knows
            timestamp_ns=timestamp_ns,
            cause=cause,
            action="reset; not trusted until the next snapshot",
        )
        self._breaks.append((instrument, gap))

    def _tell_breaks(self) -> None:
        for instrument, gap in self._breaks:
            self.report.gap(gap)
            payload = reset(instrument, gap.timestamp_ns)
            self.add(instrument, "book", BOOK_EVENT, gap.timestamp_ns, payload)
        self._breaks.clear()


def levels(rows: Any, instrument: Instrument) -> np.ndarray[Any, Any]:
    """Levels of text, ``[price, size, …]`` each, as whole numbers at the instrument's scales."""
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
    """The value of a JSON text; `BadRow` when it is none."""
    try:
        return _decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadRow("not JSON", str(error)) from None


def whole(value: Any, most: int = 2**64 - 1) -> int:
    """A number of a message that must be whole; `BadRow` otherwise.

    Example:
        >>> whole(7)
        7
    """
    if type(value) is not int or not 0 <= value <= most:
        raise BadRow(WRONG_TYPE, f"not a whole number from 0 to {most}: {value!r:.80}")
    return value
