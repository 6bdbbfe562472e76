"""The base class of importers of OKX and Bitget: channels, and books with a checksum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapewire.book.checksums import TextBook
from tapewire.ingest.capture_lines import WRONG_TYPE, BadRow, check_size, levels
from tapewire.ingest.cryptofeed import CryptofeedImporter, milliseconds_ns
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import BOOK_EVENT, TRADE_TICK, l2_diff, l2_snapshot

__all__ = ["ChecksumImporter"]


@dataclass(slots=True)
class _Update:
    """A message of a book.

    Attributes:
        timestamp_ns: When it arrived, the time in its record.
        payload: Its record.
        texts: Its levels as the venue wrote them, bids and asks.
        levels: The same levels as integers.
        previous: The sequence number of the message before it, and `last` its own; 0 without one.
    """

    snapshot: bool
    timestamp_ns: int
    payload: bytes
    texts: tuple[Any, Any]
    levels: tuple[Any, Any]
    checksum: int
    exchange_ns: int
    previous: int
    last: int


class ChecksumImporter(CryptofeedImporter):
    """Messages ``{"arg": {"channel", "instId"}, "action", "data"}``, books with a checksum.

    After each update the book, kept as the venue's own strings, must have the checksum in the
    update. If not, a reset is written to the log before the update. Updates are still written, but
    the book is untrusted until the venue sends a snapshot.

    If updates have sequence numbers, they are written in that order, and a missing one is a gap.
    """

    books_channel = "books"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._texts: dict[Instrument, TextBook | None] = {}  # None: until the next snapshot
        self._last: dict[Instrument, int] = {}  # sequence numbers

    def venue_message(self, timestamp_ns: int, document: dict[str, Any], text: bytes) -> None:
        """Import a message by its channel."""
        if "event" in document:
            self.report.skip(f"event {document['event']}"[:80])
            return
        arg = document["arg"]
        channel = arg["channel"]
        instrument = self.wanted(self.venue_of(arg), arg["instId"])
        if instrument is None:
            return
        data = document["data"]
        if type(data) is not list:
            raise BadRow(WRONG_TYPE, "data must be a list")
        if channel == self.books_channel:
            (book,) = data
            self._book(instrument, timestamp_ns, document["action"], book)
        else:
            self.not_of_book()
            if not self.other_message(instrument, timestamp_ns, channel, document, data):
                return
        self.keep_wire(instrument, timestamp_ns, text)

    def venue_of(self, arg: dict[str, Any]) -> str:
        """The venue of a message."""
        return self.venue

    def other_message(
        self,
        instrument: Instrument,
        timestamp_ns: int,
        channel: str,
        document: dict[str, Any],
        data: list[Any],
    ) -> bool:
        """Import a message of another channel than the book; False if it was skipped."""
        raise NotImplementedError

    def add_trades(
        self, instrument: Instrument, timestamp_ns: int, trades: Sequence[dict[str, Any]]
    ) -> None:
        """Add trades, given as arguments of `trade`; all or none."""
        payloads = [self.trade(instrument, **trade) for trade in trades]
        for payload in payloads:
            self.add(instrument, "trades", TRADE_TICK, timestamp_ns, payload)

    def sequence_of(self, book: dict[str, Any]) -> tuple[int, int]:
        """The sequence numbers of the message before a book message and its own, or zeros."""
        return 0, 0

    def _book(
        self, instrument: Instrument, timestamp_ns: int, action: Any, book: dict[str, Any]
    ) -> None:
        checksum = book["checksum"]
        if type(checksum) is not int or not -(2**31) <= checksum < 2**32:
            raise BadRow(WRONG_TYPE, f"not a checksum: checksum={checksum!r:.80}")
        if action not in ("snapshot", "update"):
            raise BadRow("unknown message", f"action={action!r:.80}")
        previous, last = self.sequence_of(book)
        texts = (book["bids"], book["asks"])
        update = _Update(
            action == "snapshot",
            timestamp_ns,
            b"",
            texts,
            (levels(texts[0], instrument), levels(texts[1], instrument)),
            checksum,
            milliseconds_ns(book["ts"]),
            previous,
            last,
        )
        update.payload = _encoded(instrument, update)
        check_size(update.payload)
        self.wait(instrument, timestamp_ns, (previous, last), update, snapshot=update.snapshot)

    def in_turn(self, instrument: Instrument, timestamp_ns: int, what: Any) -> None:
        """Add an update if the book after it has the checksum in it; break the book otherwise."""
        if what.timestamp_ns != timestamp_ns:
            what.timestamp_ns = timestamp_ns
            what.payload = _encoded(instrument, what)
        texts = self._continued(instrument, what)
        if texts is not None:
            for side, written, numbers in zip(("bid", "ask"), what.texts, what.levels, strict=True):
                prices, sizes = numbers[:, 0].tolist(), numbers[:, 1].tolist()
                texts.apply(side, written, prices=prices, sizes=sizes)
            if not texts.matches(what.checksum):
                self._break(instrument, timestamp_ns, what, texts.checksum())
                return
        self.add(instrument, "book", BOOK_EVENT, timestamp_ns, what.payload)

    def _break(
        self, instrument: Instrument, timestamp_ns: int, update: _Update, checksum: int
    ) -> None:
        """A snapshot must not make the book trusted: it is written as a diff without numbers."""
        self._texts[instrument] = None
        if update.snapshot:
            diff = replace(update, snapshot=False, previous=0, last=0)
            update.payload = _encoded(instrument, diff)
        venues = update.checksum & 0xFFFFFFFF
        cause = f"the book's checksum is {checksum}, the venue's {venues}"
        self.break_book(instrument, timestamp_ns, "checksum", cause, update.payload)

    def _continued(self, instrument: Instrument, update: _Update) -> TextBook | None:
        """The book that the update changes; None if that is unknown or the update is old."""
        if update.snapshot:
            self._texts[instrument] = TextBook()
        elif update.last:
            known = self._last.get(instrument, 0)
            if update.previous != known and update.last <= known:
                return None  # a duplicate, which readers ignore
            if update.previous != known:
                self._texts[instrument] = None  # readers find the gap by the sequence numbers
        self._last[instrument] = update.last
        return self._texts.get(instrument)


def _encoded(instrument: Instrument, update: _Update) -> bytes:
    bids, asks = update.levels
    common: dict[str, Any] = {"bids": bids, "asks": asks, "exchange_ns": update.exchange_ns}
    made: bytes
    if update.snapshot:
        made = l2_snapshot(instrument, update.timestamp_ns, native_seq=update.last, **common)
    else:
        ids: dict[str, Any] = {"first": min(update.previous + 1, update.last), "last": update.last}
        made = l2_diff(instrument, update.timestamp_ns, prev=update.previous, **ids, **common)
    return made
