"""Captures of OKX's public channels: books with checksums, trades, tickers."""

from __future__ import annotations

from typing import Any, ClassVar

from tapewire.ingest.capture_lines import WRONG_TYPE, BadRow, integer
from tapewire.ingest.checksum_captures import ChecksumImporter
from tapewire.ingest.cryptofeed import milliseconds_ns
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import QUOTE, scaled

__all__ = ["Okx"]

_SIDES = {"buy": False, "sell": True}  # the taker's → whether the buyer was the maker


class Okx(ChecksumImporter):
    """OKX, API version 5."""

    name: ClassVar[str] = "okx"
    venue: ClassVar[str] = "okx"

    def sequence_of(self, book: dict[str, Any]) -> tuple[int, int]:
        """`prevSeqId`, which is -1 in a snapshot, and `seqId`; messages before 2023 lack them."""
        if "seqId" not in book:
            return 0, 0
        previous = book["prevSeqId"]
        return 0 if previous == -1 else integer(previous), integer(book["seqId"])

    def other_message(
        self,
        instrument: Instrument,
        timestamp_ns: int,
        channel: str,
        document: dict[str, Any],
        data: list[Any],
    ) -> bool:
        """Import trades and tickers; skip other channels."""
        if channel == "trades":
            self.add_trades(instrument, timestamp_ns, [_trade(row) for row in data])
            return True
        if channel == "tickers":
            payloads = [
                self.quote(
                    instrument,
                    bid=(row["bidPx"], row["bidSz"]),
                    ask=(row["askPx"], row["askSz"]),
                    exchange_ns=milliseconds_ns(row["ts"]),
                )
                for row in data
            ]
            for payload in payloads:
                self.add(instrument, "quotes", QUOTE, timestamp_ns, payload)
            return True
        self.report.skip(f"channel {channel}"[:80])
        return False


def _trade(row: dict[str, Any]) -> dict[str, Any]:
    if row["side"] not in _SIDES:
        raise BadRow(WRONG_TYPE, f"side={row['side']!r:.80}")
    return {
        "price": row["px"],
        "size": row["sz"],
        "trade_id": scaled(row["tradeId"], 0),
        "buyer_is_maker": _SIDES[row["side"]],
        "exchange_ns": milliseconds_ns(row["ts"]),
    }
