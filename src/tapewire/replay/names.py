"""Which instruments a replay is about: symbols to ids, and ids to names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tapewire.protocol.instruments import Instrument, Instruments, UnknownInstrument

__all__ = ["Names"]


class Names:
    """The instruments that the logs of a replay may hold.

    Args:
        instruments: As given by the user; None takes each log's nearest `instruments.json`.
        folders: Of the logs.
    """

    def __init__(
        self, instruments: Instruments | None, folders: Iterable[str | os.PathLike[str]]
    ) -> None:
        folders = list(folders)
        self._places = {pair for one in folders for pair in pairwise(Path(one).absolute().parts)}
        if instruments is None:
            instruments = Instruments()
            for loaded in [Instruments.load(folder) for folder in folders]:
                instruments = instruments if len(instruments) else loaded
                for one in loaded:
                    if one not in instruments:
                        instruments.add(one)
        self.instruments = instruments

    def find(self, symbols: Iterable[str | Instrument] | str | Instrument) -> list[Instrument]:
        """The instruments of these symbols, each once.

        Where several venues have a symbol, those count whose log this is: of an archive and of a
        bus the folders say so, ``…/VENUE/SYMBOL/…``. Else it takes ``venue:symbol``.

        Raises:
            UnknownInstrument: There is none, or several venues have it.
        """
        if isinstance(symbols, str | Instrument):
            symbols = [symbols]
        found: dict[Instrument, None] = {}
        for one in symbols:
            found.update(dict.fromkeys([one] if isinstance(one, Instrument) else self._named(one)))
        return list(found)

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
        """Venue and symbol; of an instrument that no file names, its ids: ``("#7", "#42")``."""
        one = self.instruments.by_id(venue_id, market_id)
        return (one.venue, one.symbol) if one else (f"#{venue_id}", f"#{market_id}")
