"""Units of a replay: an instrument with its logs of consecutive days.

If a day is missing, a unit ends and the next day begins another one: a book that is days old must
not be continued.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.scan.instruments import KnownInstruments

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["LogUnit", "follows", "runs_of", "units_of"]

_OTHER_STREAMS = ("orders_in", "orders_out")
_REPLAYED_STREAMS = ("book", "trades")


@dataclass(frozen=True)
class LogUnit:
    """Logs that are replayed as one.

    Attributes:
        instrument: What is replayed; None: all instruments in the logs, in one slice.
        logs: The logs, sorted by name.
        whole: The instrument as ``venue:symbol``; "*" if it may be any.
        since: The first of the consecutive days; "" for logs without a day.
    """

    instrument: Instrument | None
    logs: tuple[LogRef, ...]
    whole: str = "*"
    since: str = ""

    @property
    def name(self) -> str:
        """The name of the unit, unique within a query."""
        return f"{self.whole}@{self.since}" if self.since else self.whole


def units_of(
    options: ReadOptions,
    logs: Sequence[LogRef],
    *,
    read: Container[str] = (),
    begun: Iterable[str] = (),
) -> list[LogUnit]:
    """The units of a query, sorted by venue and symbol, those of one instrument by day.

    Logs whose path names a venue and a symbol are grouped by these. Other logs may hold many
    instruments: each instrument of `options.symbols` is a unit of them; without `symbols` they are
    one unit. Units are cut where a day is missing; logs without a day are a unit of their own.

    Args:
        options: Symbols and instruments.
        logs: The logs to read.
        read: For a resumed query, names of logs that it has read: they stay in their units.
        begun: For a resumed query, names of its units: each keeps its first day, even if logs of
            earlier days have been added.

    Raises:
        UnknownInstrument: A symbol of `options.symbols` has no log and is in no instruments.json.
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
        LogUnit(known.beside(*chosen).get(venue, symbol), tuple(chosen), f"{venue}:{symbol}")
        for (venue, symbol), all_of_it in sorted(by_name.items())
        if (chosen := _replayed(all_of_it))
    ]
    if mixed and options.symbols is None:
        units.append(LogUnit(None, tuple(mixed)))
    elif mixed:
        units += [
            LogUnit(
                one,
                tuple(log for log in mixed if log.venue in (None, one.venue)),
                f"{one.venue}:{one.symbol}",
            )
            for one in _named(options, known.beside(*mixed), mixed, set(by_name))
        ]
    begun = tuple(begun)
    return [run for unit in units for run in _cut(unit, read, begun)]


def runs_of(units: Iterable[LogUnit]) -> list[list[LogUnit]]:
    """Units of `units_of` grouped by instrument, by day; units without days are apart."""
    by_instrument = groupby(units, key=lambda unit: (unit.whole, unit.since != ""))
    return [list(runs) for _, runs in by_instrument]


def follows(date: str, last: str) -> bool:
    """Whether a day, as ``YYYY-MM-DD``, is the day after another.

    Example:
        >>> follows("2024-03-01", "2024-02-29"), follows("2024-03-02", "2024-02-29")
        (True, False)
    """
    return dt.date.fromisoformat(date) - dt.date.fromisoformat(last) == dt.timedelta(days=1)


def _cut(unit: LogUnit, read: Container[str], begun: Iterable[str]) -> Iterator[LogUnit]:
    """The logs without a day, then each run of consecutive days."""
    undated = tuple(log for log in unit.logs if log.date is None)
    if undated:
        yield replace(unit, logs=undated)
    by_day: dict[str, list[LogRef]] = {}
    for log in unit.logs:
        if log.date is not None:
            by_day.setdefault(log.date, []).append(log)
    mark = f"{unit.whole}@"
    starts = {name.removeprefix(mark) for name in begun if name.startswith(mark)}
    runs: dict[str, list[LogRef]] = {}
    since = last = ""
    for date, logs in sorted(by_day.items()):
        if any(log.name in read for log in logs):
            since = max((start for start in starts if start <= date), default=date)
        elif date in starts or not last or not follows(date, last):
            since = date
        runs.setdefault(since, []).extend(logs)
        last = date
    for since, logs in runs.items():
        yield replace(unit, logs=tuple(sorted(logs)), since=since)


def _named(
    options: ReadOptions,
    known: Instruments,
    logs: Sequence[LogRef],
    elsewhere: set[tuple[str, str]],
) -> list[Instrument]:
    """The instruments of `options.symbols` that logs of many instruments may hold.

    A symbol without a venue matches every venue, or the venues of these logs.
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
            known.find(
                symbol if venue is None else f"{venue}:{symbol}"
            )  # raises, with those that exist
    return sorted(found, key=lambda one: (one.venue, one.symbol))


def _replayed(logs: list[LogRef]) -> list[LogRef]:
    """The logs of books and trades, if streams have these names; otherwise all logs."""
    named = [log for log in logs if log.stream in _REPLAYED_STREAMS]
    return named or logs
