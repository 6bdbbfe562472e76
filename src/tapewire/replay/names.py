"""Which instruments a replay is about: symbols to ids, and ids to names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tapewire.protocol.instruments import Instrument, Instruments

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
        if instruments is None:
            instruments = Instruments()
            for loaded in [Instruments.load(folder) for folder in folders]:
                instruments = instruments if len(instruments) else loaded
                for one in loaded:
                    if one not in instruments:
                        instruments.add(one)
        self.instruments = instruments

    def find(self, symbols: Iterable[str | Instrument] | str | Instrument) -> list[Instrument]:
        """The instruments of these symbols, each once; ``venue:symbol`` where several have it.

        Raises:
            UnknownInstrument: There is none, or several venues have it.
        """
        if isinstance(symbols, str | Instrument):
            symbols = [symbols]
        found = (
            one if isinstance(one, Instrument) else self.instruments.find(one) for one in symbols
        )
        return list(dict.fromkeys(found))

    def of(self, venue_id: int, market_id: int) -> tuple[str, str]:
        """Venue and symbol; of an instrument that no file names, its ids: ``("#7", "#42")``."""
        one = self.instruments.by_id(venue_id, market_id)
        return (one.venue, one.symbol) if one else (f"#{venue_id}", f"#{market_id}")
