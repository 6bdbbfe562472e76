"""The instruments of the logs of a query: their names, and a scale that fits all prices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import (
    FILE_NAME,
    Instrument,
    Instruments,
    UnknownInstrument,
    nearest_file,
)
from tapewire.protocol.market import symbol_hash

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["InstrumentNames", "KnownInstruments", "given_instruments", "price_scale"]


def given_instruments(options: ReadOptions) -> Instruments | None:
    """The instruments of the option `instruments`; None without it.

    Raises:
        InvalidOption: The option is not the path of an instruments.json.
    """
    if options.instruments is None:
        return None
    path = os.path.abspath(options.instruments)
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    if not os.path.isfile(os.path.join(directory, FILE_NAME)) or (
        directory != path and os.path.basename(path) != FILE_NAME
    ):
        raise InvalidOption(
            f"instruments must be an {FILE_NAME} or its directory: "
            f"instruments={options.instruments}"
        )
    return Instruments.load(directory)


class KnownInstruments:
    """The instruments of logs: those of the option, or else of the file nearest to each log.

    Each file is read once, however many logs are below it.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._given = given_instruments(options)
        self._files: dict[str | None, Instruments] = {}

    def beside(self, *logs: LogRef) -> Instruments:
        """The instruments that these logs may hold.

        Raises:
            InvalidOption: Two of their files give an instrument different ids.
        """
        if self._given is not None:
            return self._given
        found: dict[str | None, Instruments] = {}
        for log in logs:
            nearest = nearest_file(log.path)
            if nearest not in self._files:
                self._files[nearest] = Instruments.load(log.path)
            found[nearest] = self._files[nearest]
        first, *others = found.values()
        if not others:
            return first
        merged = Instruments(first)
        for each in others:
            for one in each:
                _merge(merged, one, each.path)
        return merged


def _merge(known: Instruments, one: Instrument, path: str | None) -> None:
    """Add an instrument, whose ids must be the same in all files: records name it by them."""
    added = known.add(one)
    if (added.venue_id, added.market_id) != (one.venue_id, one.market_id):
        raise InvalidOption(
            f"logs that are read together disagree on the ids of an instrument: instrument={one}, "
            f"market_id={added.market_id} and {one.market_id}",
            path=path,
            hint="read them separately",
        )


def price_scale(options: ReadOptions, logs: Sequence[LogRef]) -> int:
    """The largest price scale of the instruments that a query may read.

    Raises:
        InvalidOption: No instrument is known.
    """
    known = KnownInstruments(options)
    scales = [
        one.price_scale for log in logs for one in known.beside(log) if _may_meet(one, log, options)
    ]
    if not scales:
        raise InvalidOption(
            "prices=decimal needs instruments, and none is known",
            path=logs[0].path if logs else None,
            hint=f"give an {FILE_NAME} with the option instruments, or read with prices=scaled",
        )
    return max(scales)


def _may_meet(one: Instrument, log: LogRef, options: ReadOptions) -> bool:
    of_log = log.venue in (None, one.venue) and log.symbol in (None, one.symbol)
    return of_log and options.asks_for(one.venue, one.symbol)


class InstrumentNames:
    """Names of the instruments of one log, by the ids and hashes in its messages."""

    def __init__(self, log: LogRef, options: ReadOptions) -> None:
        self._log = log
        self._options = options
        self._known = KnownInstruments(options).beside(log)
        self._by_hash = {one.symbol_hash: one for one in self._known}
        self._found: dict[tuple[int, int], tuple[str, str]] = {}

    def name(self, market_id: int, hash_: int) -> tuple[str, str]:
        """Venue and symbol.

        Raises:
            UnknownInstrument: Neither instruments.json nor the log's path has the names.
        """
        key = market_id, hash_
        if key not in self._found:
            self._found[key] = self._find(market_id, hash_)
        return self._found[key]

    def _find(self, market_id: int, hash_: int) -> tuple[str, str]:
        # As in a replay: the hash is computed from the names; ids are assigned by a file.
        one = self._by_hash.get(hash_) if hash_ else self._known.by_market(market_id)
        if one is not None:
            return one.venue, one.symbol
        venue, symbol = self._log.venue, self._log.symbol
        if venue is not None and symbol is not None and symbol_hash(venue, symbol) == hash_:
            return venue, symbol
        raise UnknownInstrument(
            f"unknown instrument: market_id={market_id}, symbol_hash=0x{hash_:016X}, "
            f"queue={self._log.name}",
            path=self._known.path or self._log.path,
            hint=f"give an {FILE_NAME} that has it with the option instruments",
        )

    def wanted(self, market_id: int, hash_: int) -> bool:
        """Whether the option `symbols` asks for this instrument.

        Raises:
            UnknownInstrument: It is not known, and some of `symbols` are not known either, so it
                may be one of them.
        """
        if self._options.symbols is None:
            return True
        try:
            return self._options.asks_for(*self.name(market_id, hash_))
        except UnknownInstrument:
            if self._all_known:
                return False
            raise

    @cached_property
    def _all_known(self) -> bool:
        return all(
            any(one.symbol == symbol and venue in (None, one.venue) for one in self._known)
            for venue, symbol in self._options.symbols or ()
        )
