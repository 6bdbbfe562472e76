"""The base class of importers of OKX and Bitget: channels, and books with a checksum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapewire.book.checksums import TextBook
from tapewire.ingest.capture_lines import WRONG_TYPE, BadRow, levels
from tapewire.ingest.cryptofeed import CryptofeedImporter, milliseconds_ns
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import BOOK_EVENT, TRADE_TICK, l2_diff, l2_snapshot

__all__ = ["ChecksumImporter"]


class ChecksumImporter(CryptofeedImporter):
    """Messages ``{"arg": {"channel", "instId"}, "action", "data"}``, books with a checksum.

    After each update the book, kept as the venue's own strings, must have the checksum in the
    update. If not, a reset is written to the log before the update. Updates are still written, but
    the book is untrusted until the venue sends a snapshot.
    """

    books_channel = "books"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._texts: dict[Instrument, TextBook | None] = {}  # None: until the next snapshot

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

    def _book(
        self, instrument: Instrument, timestamp_ns: int, action: Any, book: dict[str, Any]
    ) -> None:
        checksum = book["checksum"]
        if type(checksum) is not int or not -(2**31) <= checksum < 2**32:
            raise BadRow(WRONG_TYPE, f"not a checksum: checksum={checksum!r:.80}")
        if action not in ("snapshot", "update"):
            raise BadRow("unknown message", f"action={action!r:.80}")
        sides = {side: levels(book[f"{side}s"], instrument) for side in ("bid", "ask")}
        exchange_ns = milliseconds_ns(book["ts"])

        texts = TextBook() if action == "snapshot" else self._texts.get(instrument)
        failed = None
        if texts is not None:
            for side, numbers in sides.items():
                prices, sizes = numbers[:, 0].tolist(), numbers[:, 1].tolist()
                texts.apply(side, book[f"{side}s"], prices=prices, sizes=sizes)
            if not texts.matches(checksum):
                failed = f"{texts.checksum()}, the venue's {checksum & 0xFFFFFFFF}"
        self._texts[instrument] = None if failed else texts

        # A snapshot that does not match must not make the book trusted: it is written as a diff.
        encode = l2_snapshot if action == "snapshot" and not failed else l2_diff
        bids, asks = sides["bid"], sides["ask"]
        payload = encode(instrument, timestamp_ns, bids=bids, asks=asks, exchange_ns=exchange_ns)
        if failed:
            cause = f"the book's checksum is {failed}"
            self.break_book(instrument, timestamp_ns, "checksum", cause, payload)
        else:
            self.add(instrument, "book", BOOK_EVENT, timestamp_ns, payload)
