"""What is replayed as one tape: an instrument with its logs, of days that follow each other.

Where a day is missing a tape ends, and the next day begins another: a book that is days old is no
book to go on with.
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
    """Logs that are one tape.

    Attributes:
        instrument: What is replayed of them; None: whatever they hold, in one slice.
        logs: By name.
        whole: Names the instrument; "*" where it may be any.
        since: The first day of those that follow each other; "" of logs that say no day.
    """

    instrument: Instrument | None
    logs: tuple[LogRef, ...]
    whole: str = "*"
    since: str = ""

    @property
    def name(self) -> str:
        """Of the tape, among all of a query."""
        return f"{self.whole}@{self.since}" if self.since else self.whole


def units_of(
    options: ReadOptions,
    logs: Sequence[LogRef],
    *,
    read: Container[str] = (),
    begun: Iterable[str] = (),
) -> list[LogUnit]:
    """The units of a query, sorted by venue and symbol, those of one instrument by day.

    Logs whose path says venue and symbol are put together by them. Of others, which may hold many
    instruments, each that `options.symbols` names is a unit; without that, all are one. Each is cut
    where a day is missing; logs that say no day are apart from those that do.

    Args:
        options: Symbols, and where instruments are known from.
        logs: What there is to read.
        read: Of a query that goes on, names of logs that it has read: they stay in their units.
        begun: And names of its units: each stays one that begins where it did, though days before
            it have come since.

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
    """Units of `units_of` that are of one instrument, by day; those without days by themselves."""
    by_instrument = groupby(units, key=lambda unit: (unit.whole, unit.since != ""))
    return [list(runs) for _, runs in by_instrument]


def follows(date: str, last: str) -> bool:
    """Whether a day, as ``YYYY-MM-DD``, is the one behind another.

    Example:
        >>> follows("2024-03-01", "2024-02-29"), follows("2024-03-02", "2024-02-29")
        (True, False)
    """
    return dt.date.fromisoformat(date) - dt.date.fromisoformat(last) == dt.timedelta(days=1)


def _cut(unit: LogUnit, read: Container[str], begun: Iterable[str]) -> Iterator[LogUnit]:
    """A unit's runs of days that follow each other, behind its logs that say no day."""
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
