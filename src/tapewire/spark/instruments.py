"""Which instruments the logs of a query have: their names, and the scale that fits all prices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import FILE_NAME, Instrument, Instruments, UnknownInstrument
from tapewire.protocol.market import symbol_hash

if TYPE_CHECKING:
    from tapewire.spark.logs import LogRef
    from tapewire.spark.options import ReadOptions

__all__ = ["InstrumentNames", "instruments_of", "price_scale"]


def instruments_of(log: LogRef, options: ReadOptions) -> Instruments:
    """Those of the option `instruments`, else those of the file nearest to the log.

    Raises:
        InvalidOption: The option names no instruments.json.
    """
    if options.instruments is None:
        return Instruments.load(log.path)
    path = os.path.abspath(options.instruments)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if not os.path.isfile(os.path.join(folder, FILE_NAME)) or (
        folder != path and os.path.basename(path) != FILE_NAME
    ):
        raise InvalidOption(
            f"instruments must be an {FILE_NAME} or its folder: instruments={options.instruments}"
        )
    return Instruments.load(folder)


def price_scale(options: ReadOptions, logs: Sequence[LogRef]) -> int:
    """The largest scale of the prices of all instruments that a query can meet.

    Raises:
        InvalidOption: No instrument is known.
    """
    scales = [
        one.price_scale
        for log in logs
        for one in instruments_of(log, options)
        if _may_meet(one, log, options)
    ]
    if not scales:
        raise InvalidOption(
            "prices=decimal needs to know the instruments, and none is known",
            path=logs[0].path if logs else None,
            hint=f"name an {FILE_NAME} by option instruments, or read prices=scaled",
        )
    return max(scales)


def _may_meet(one: Instrument, log: LogRef, options: ReadOptions) -> bool:
    of_log = log.venue in (None, one.venue) and log.symbol in (None, one.symbol)
    return of_log and _chosen(one.venue, one.symbol, options)


def _chosen(venue: str, symbol: str, options: ReadOptions) -> bool:
    if options.symbols is None:
        return True
    return (None, symbol) in options.symbols or (venue, symbol) in options.symbols


class InstrumentNames:
    """Names of the instruments of one log by the numbers that its messages have."""

    def __init__(self, log: LogRef, options: ReadOptions) -> None:
        self._log = log
        self._options = options
        self._known = instruments_of(log, options)
        self._found: dict[tuple[int, int], tuple[str, str]] = {}

    def name(self, market_id: int, hash_: int) -> tuple[str, str]:
        """Venue and symbol.

        Raises:
            UnknownInstrument: Neither instruments.json nor the log's path says them.
        """
        key = market_id, hash_
        if key not in self._found:
            self._found[key] = self._look(market_id, hash_)
        return self._found[key]

    def _look(self, market_id: int, hash_: int) -> tuple[str, str]:
        one = self._known.by_market(market_id)
        if one is not None:
            return one.venue, one.symbol
        venue, symbol = self._log.venue, self._log.symbol
        if venue is not None and symbol is not None and symbol_hash(venue, symbol) == hash_:
            return venue, symbol
        raise UnknownInstrument(
            f"no instrument has this number: market_id={market_id}, queue={self._log.name}",
            path=self._known.path or self._log.path,
            hint=f"name an {FILE_NAME} that has it by option instruments",
        )

    def wanted(self, market_id: int, hash_: int) -> bool:
        """Whether the option `symbols` asks for it."""
        return self._options.symbols is None or _chosen(*self.name(market_id, hash_), self._options)
