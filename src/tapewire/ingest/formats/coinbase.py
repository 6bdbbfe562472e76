"""Captures of Coinbase's feed: level2 (snapshot, l2update), matches, ticker."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from tapewire.ingest.capture_lines import WRONG_TYPE, BadRow, integer, levels
from tapewire.ingest.cryptofeed import CryptofeedImporter
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import (
    BOOK_EVENT,
    QUOTE,
    TRADE_TICK,
    l2_diff,
    l2_snapshot,
)

__all__ = ["Coinbase"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SKIPPED = frozenset(("subscriptions", "heartbeat", "status"))
_MAKERS = {"buy": True, "sell": False}  # a match names the maker's side


class Coinbase(CryptofeedImporter):
    """Coinbase Exchange. Its diffs have no update ids, so a missing one is not detected.

    The exchange's time of a product's diffs must not go back, and a book must not be crossed.
    """

    name: ClassVar[str] = "coinbase"
    venue: ClassVar[str] = "coinbase"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._latest_ns: dict[Instrument, int] = {}  # the exchange's time of the last diff

    def venue_message(self, timestamp_ns: int, document: dict[str, Any], text: bytes) -> None:
        """Import a message by its type."""
        kind = document["type"]
        if kind in _SKIPPED:
            self.report.skip(kind)
            return
        # The last match is from before the capture.
        if kind == "last_match":
            self.report.skip("trades before the capture")
            return
        if kind not in ("l2update", "snapshot", "match", "ticker"):
            raise BadRow("unknown message", f"type={kind!r:.80}")
        instrument = self.wanted(self.venue, document["product_id"])
        if instrument is None:
            return
        if kind == "l2update":
            exchange_ns = iso_time_ns(document["time"])
            payload = _diff(instrument, timestamp_ns, exchange_ns, document)
            if exchange_ns < self._latest_ns.get(instrument, 0):
                self.lost(instrument, "out_of_order")
            self._latest_ns[instrument] = exchange_ns
            self.add(instrument, "book", BOOK_EVENT, timestamp_ns, payload)
        elif kind == "snapshot":
            payload = l2_snapshot(
                instrument,
                timestamp_ns,
                bids=levels(document["bids"], instrument),
                asks=levels(document["asks"], instrument),
            )
            self.add(instrument, "book", BOOK_EVENT, timestamp_ns, payload)
        elif kind == "match":
            self.not_of_book()
            payload = self._match(instrument, document)
            self.add(instrument, "trades", TRADE_TICK, timestamp_ns, payload)
        else:
            self.not_of_book()
            payload = self._ticker(instrument, timestamp_ns, document)
            self.add(instrument, "quotes", QUOTE, timestamp_ns, payload)
        self.keep_wire(instrument, timestamp_ns, text)

    def _match(self, instrument: Instrument, document: dict[str, Any]) -> bytes:
        side = document["side"]
        if side not in _MAKERS:
            raise BadRow(WRONG_TYPE, f"side={side!r:.80}")
        return self.trade(
            instrument,
            price=document["price"],
            size=document["size"],
            trade_id=integer(document["trade_id"]),
            buyer_is_maker=_MAKERS[side],
            exchange_ns=iso_time_ns(document["time"]),
        )

    def _ticker(self, instrument: Instrument, timestamp_ns: int, document: dict[str, Any]) -> bytes:
        """A quote. Tickers of 2021 have no sizes: they are 0, which no level of a book has."""
        time = document.get("time")
        return self.quote(
            instrument,
            bid=(document["best_bid"], document.get("best_bid_size", "0")),
            ask=(document["best_ask"], document.get("best_ask_size", "0")),
            exchange_ns=timestamp_ns if time is None else iso_time_ns(time),
        )


def _diff(
    instrument: Instrument, timestamp_ns: int, exchange_ns: int, document: dict[str, Any]
) -> bytes:
    bids: list[list[str]] = []
    asks: list[list[str]] = []
    sides = {"buy": bids, "sell": asks}
    for side, price, size in document["changes"]:
        sides[side].append([price, size])
    payload: bytes = l2_diff(
        instrument,
        timestamp_ns,
        bids=levels(bids, instrument),
        asks=levels(asks, instrument),
        exchange_ns=exchange_ns,
    )
    return payload


def iso_time_ns(text: Any) -> int:
    """A time like ``2021-04-17T16:43:37.075687Z`` in nanoseconds.

    Example:
        >>> iso_time_ns("1970-01-01T00:00:01.000001Z")
        1000001000
    """
    try:
        since = dt.datetime.fromisoformat(text) - _EPOCH
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRow(WRONG_TYPE, f"not a time: {error}") from None
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not 0 <= microseconds < 2**63 // 1000:
        raise BadRow(WRONG_TYPE, f"not a time from 1970 to 2262: {text!r:.80}")
    return microseconds * 1000
