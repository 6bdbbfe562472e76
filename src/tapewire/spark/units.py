"""What is replayed as one tape: an instrument with all its logs, of all days."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapewire.protocol.instruments import FILE_NAME, Instrument, Instruments
from tapewire.replay.names import Names
from tapewire.spark.instruments import instruments_of

if TYPE_CHECKING:
    from tapewire.spark.logs import LogRef
    from tapewire.spark.options import ReadOptions

__all__ = ["Unit", "units_of"]

# Streams that hold what venues and strategies said, and not what became of it.
_OTHER_STREAMS = ("raw", "orders_in", "orders_out")
_REPLAYED_STREAMS = ("book", "trades")


@dataclass(frozen=True)
class Unit:
    """Logs that are one tape.

    Attributes:
        instrument: What is replayed of them; None: whatever they hold, in one slice.
        logs: By name.
    """

    instrument: Instrument | None
    logs: tuple[LogRef, ...]


def units_of(options: ReadOptions, logs: Sequence[LogRef]) -> list[Unit]:
    """The units of a query, sorted by venue and symbol.

    Logs whose path says venue and symbol are put together by them. Of others, which may hold many
    instruments, each that `options.symbols` names is a unit; without that, all are one.

    Raises:
        UnknownInstrument: A symbol of `options.symbols` is none, or is one of several venues.
    """
    known = _Known(options)
    by_name: dict[tuple[str, str], list[LogRef]] = {}
    mixed: list[LogRef] = []
    for log in logs:
        if log.stream in _OTHER_STREAMS:
            continue
        if log.venue is not None and log.symbol is not None:
            by_name.setdefault((log.venue, log.symbol), []).append(log)
        else:
            mixed.append(log)
    units = [
        Unit(known.beside(chosen).get(venue, symbol), tuple(chosen))
        for (venue, symbol), all_of_it in sorted(by_name.items())
        if (chosen := _replayed(all_of_it))
    ]
    if mixed and options.symbols is None:
        units.append(Unit(None, tuple(mixed)))
    elif mixed:
        names = Names(known.beside(mixed), [log.path for log in mixed])
        asked = options.symbols or ()
        wanted = [f"{venue}:{symbol}" if venue else symbol for venue, symbol in asked]
        units += [Unit(one, tuple(mixed)) for one in names.find(wanted)]
    return units


def _replayed(logs: list[LogRef]) -> list[LogRef]:
    """Books and trades, where streams have these names; else all."""
    named = [log for log in logs if log.stream in _REPLAYED_STREAMS]
    return named or logs


class _Known:
    """The instruments beside logs; each file is read once, however many logs are below it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._files: dict[str | None, Instruments] = {}

    def beside(self, logs: Sequence[LogRef]) -> Instruments:
        found: dict[str | None, Instruments] = {}
        for log in logs:
            nearest = _nearest(log.path) if self._options.instruments is None else None
            if nearest not in self._files:
                self._files[nearest] = instruments_of(log, self._options)
            found[nearest] = self._files[nearest]
        first, *others = found.values()
        if not others:
            return first
        merged = Instruments(first)
        for one in (one for each in others for one in each):
            if one not in merged:
                merged.add(one)
        return merged


def _nearest(folder: str) -> str | None:
    """The instruments.json that a log's folder has, or one above it."""
    while not os.path.exists(os.path.join(folder, FILE_NAME)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder
