"""Captures of Bitget's public channels, spot and futures: books with checksums, trades.

Its ticker has rounded prices without sizes, so it is not imported as quotes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tapewire.ingest.capture_lines import WRONG_TYPE, BadRow
from tapewire.ingest.checksum_captures import ChecksumImporter
from tapewire.ingest.cryptofeed import milliseconds_ns
from tapewire.protocol.instruments import Instrument

__all__ = ["Bitget"]

_VENUES = {"sp": "bitget_spot", "mc": "bitget_mix"}
_SIDES = {"buy": False, "sell": True}


class Bitget(ChecksumImporter):
    """Bitget, API version 1. Spot and futures have the same symbols, so they are two venues."""

    name: ClassVar[str] = "bitget"
    venue: ClassVar[str] = "bitget_spot"

    def venue_of(self, arg: dict[str, Any]) -> str:
        """The venue, by the type of the instrument."""
        kind = arg["instType"]
        venue = _VENUES.get(kind.lower())
        if venue is None:
            raise BadRow("unknown message", f"instType={kind!r:.80}")
        return venue

    def other_message(
        self,
        instrument: Instrument,
        timestamp_ns: int,
        channel: str,
        document: dict[str, Any],
        data: list[Any],
    ) -> bool:
        """Import trades; skip candles and tickers."""
        if channel == "trade" and document["action"] == "update":
            self.add_trades(instrument, timestamp_ns, [_trade(row) for row in data])
            return True
        # The snapshot of the trade channel is fifty trades from before the capture.
        what = "trades before the capture" if channel == "trade" else f"channel {channel}"
        self.report.skip(what[:80])
        return False


def _trade(row: list[Any]) -> dict[str, Any]:
    time, price, size, side = row
    if side not in _SIDES:
        raise BadRow(WRONG_TYPE, f"side={side!r:.80}")
    return {
        "price": price,
        "size": size,
        "trade_id": 0,  # not in the message
        "buyer_is_maker": _SIDES[side],
        "exchange_ns": milliseconds_ns(time),
    }
