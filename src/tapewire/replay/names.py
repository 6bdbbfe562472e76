"""The instruments of a replay: symbols to ids, and ids to names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tapewire.protocol.instruments import Instrument, Instruments, UnknownInstrument

__all__ = ["Names"]


class Names:
    """The instruments that the logs of a replay may hold.

    Args:
        instruments: As given by the user; None takes each log's nearest `instruments.json`.
        directories: The directories of the logs.
        qualify: Whether `of` returns ``venue:symbol`` for a symbol that several venues of this
            replay have: for tables without a column `venue`. This depends on the arguments and on
            the paths of the logs, not on the rows, so slices of a table have the same labels.
    """

    def __init__(
        self,
        instruments: Instruments | None,
        directories: Iterable[str | os.PathLike[str]],
        *,
        qualify: bool = False,
    ) -> None:
        directories = list(directories)
        self._places = {
            pair for one in directories for pair in pairwise(Path(one).absolute().parts)
        }
        self._qualify = qualify
        if instruments is None:
            instruments = Instruments()
            for loaded in [Instruments.load(directory) for directory in directories]:
                instruments = instruments if len(instruments) else loaded
                for one in loaded:
                    if one not in instruments:
                        instruments.add(one)
        self.instruments = instruments
        self._wanted: list[Instrument] = []

    def find(self, symbols: Iterable[str | Instrument] | str | Instrument) -> list[Instrument]:
        """Return the instruments of these symbols, without duplicates.

        If several venues have a symbol, the venues in the paths of the logs are taken: an archive
        and a bus have directories ``…/VENUE/SYMBOL/…``. Otherwise pass ``venue:symbol``.

        Raises:
            UnknownInstrument: No venue has the symbol, or several have it.
        """
        if isinstance(symbols, str | Instrument):
            symbols = [symbols]
        found: dict[Instrument, None] = {}
        for one in symbols:
            found.update(dict.fromkeys([one] if isinstance(one, Instrument) else self._named(one)))
        self._wanted = list(found)
        return self._wanted

    def _named(self, symbol: str) -> list[Instrument]:
        try:
            return [self.instruments.find(symbol)]
        except UnknownInstrument:
            here = [
                one
                for one in self.instruments
                if one.symbol == symbol and (one.venue, symbol) in self._places
            ]
            if not here:
                raise
            return here

    def of(self, venue_id: int, market_id: int) -> tuple[str, str]:
        """Return venue and symbol; for an instrument without a name, its ids: ``("#7", "#42")``."""
        one = self.instruments.by_id(venue_id, market_id)
        venue, symbol = (one.venue, one.symbol) if one else (f"#{venue_id}", f"#{market_id}")
        return venue, f"{venue}:{symbol}" if symbol in self._qualified else symbol

    @cached_property
    def _qualified(self) -> set[str]:
        """The symbols to which `of` adds the venue."""
        if not self._qualify:
            return set()
        in_logs = [one for one in self.instruments if (one.venue, one.symbol) in self._places]
        counts = Counter(one.symbol for one in self._wanted or in_logs or self.instruments)
        return {symbol for symbol, venues in counts.items() if venues > 1}
