"""What is replayed as one tape: an instrument with all its logs, of all days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.spark.reading.instruments import KnownInstruments

if TYPE_CHECKING:
    from tapewire.spark.reading.logs import LogRef
    from tapewire.spark.reading.options import ReadOptions

__all__ = ["Unit", "units_of"]

_OTHER_STREAMS = ("orders_in", "orders_out")
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
        UnknownInstrument: No log is of a symbol of `options.symbols`, and no file knows it.
    """
    known = KnownInstruments(options)
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
        Unit(known.beside(*chosen).get(venue, symbol), tuple(chosen))
        for (venue, symbol), all_of_it in sorted(by_name.items())
        if (chosen := _replayed(all_of_it))
    ]
    if mixed and options.symbols is None:
        units.append(Unit(None, tuple(mixed)))
    elif mixed:
        units += [
            Unit(one, tuple(log for log in mixed if log.venue in (None, one.venue)))
            for one in _named(options, known.beside(*mixed), mixed, set(by_name))
        ]
    return units


def _named(
    options: ReadOptions,
    known: Instruments,
    logs: Sequence[LogRef],
    elsewhere: set[tuple[str, str]],
) -> list[Instrument]:
    """The instruments of `options.symbols` that logs of many may hold.

    A symbol without a venue is that of every venue, or of those whose logs these are.
    """
    venues = {log.venue for log in logs}
    found: dict[Instrument, None] = {}
    for venue, symbol in options.symbols or ():
        matches = [
            one
            for one in known
            if one.symbol == symbol
            and venue in (None, one.venue)
            and (None in venues or one.venue in venues)
        ]
        found.update(dict.fromkeys(matches))
        if not matches and not any(of == symbol and venue in (None, at) for at, of in elsewhere):
            known.find(symbol if venue is None else f"{venue}:{symbol}")  # says which there are
    return sorted(found, key=lambda one: (one.venue, one.symbol))


def _replayed(logs: list[LogRef]) -> list[LogRef]:
    """Books and trades, where streams have these names; else all."""
    named = [log for log in logs if log.stream in _REPLAYED_STREAMS]
    return named or logs
