"""The logs at a path, and what their paths say about them."""

from __future__ import annotations

import datetime as dt
import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tapewire.bus.layout import CONTROL, is_day
from tapewire.clock import DAY_NS, day_start_ns
from tapewire.errors import InvalidOption, NotALog
from tapewire.log import kind_of
from tapewire.queue.status import find_queues

if TYPE_CHECKING:
    from tapewire.scan.options import ReadOptions

__all__ = ["LogRef", "resolve"]

RAW = "raw"
_OF_MARKETS = ("trades", "book", "features")


@dataclass(frozen=True, order=True)
class LogRef:
    """One log: its path, and what follows from the path about its contents.

    Attributes:
        name: The value of the column `queue`: unique among the logs of one read, and the same each
            time that path is read.
        path: Absolute path.
        venue: The venue of all its records, or None.
        symbol: The symbol of all its records, or None.
        date: The UTC day of a log in an archive as ``YYYY-MM-DD``, or None.
        stream: For example "book", "trades", "raw"; or None.
        kind: The kind of log.
    """

    name: str
    path: str
    venue: str | None = None
    symbol: str | None = None
    date: str | None = None
    stream: str | None = None
    kind: str = "queue"

    def may_meet(self, time_from: int | None, time_to: int | None) -> bool:
        """Whether the log may have a record in this time range, judged by its path alone.

        Example:
            >>> log = LogRef("okx/BTC-USDT/1970-01-02/trades", "/archive/…", date="1970-01-02")
            >>> day_ns = 86_400 * 10**9
            >>> log.may_meet(2 * day_ns, None), log.may_meet(2 * day_ns - 1, None)
            (False, True)
            >>> log.may_meet(None, day_ns), log.may_meet(None, day_ns + 1)
            (False, True)
        """
        if self.date is None or (time_from is None and time_to is None):
            return True
        day_ns = day_start_ns(dt.date.fromisoformat(self.date))
        return (time_from is None or time_from < day_ns + DAY_NS) and (
            time_to is None or time_to > day_ns
        )


def resolve(paths: str | tuple[str, ...], options: ReadOptions) -> list[LogRef]:
    """The logs at paths, sorted by name.

    A path is a log, a directory with logs at any depth below it (an archive, a part of one, a bus),
    or a glob of those. `options.symbols` leaves out logs whose path names another symbol. Views of
    market data leave out a raw log if there are clean logs of its venue and day: those have the
    same records.

    Raises:
        FileNotFoundError: A path does not exist.
        NotALog: There is no log at a path.
        InvalidOption: Two logs would have the same name.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> from tapewire.scan.options import ReadOptions
        >>> where = bus.ArchiveLayout(tmp).log("okx", "BTC-USDT", "2026-01-31", "trades")
        >>> tw.open_publisher(where, segment_bytes=1 << 20).close()
        >>> [log] = resolve(str(tmp), ReadOptions())
        >>> log.name, log.venue, log.date
        ('okx/BTC-USDT/2026-01-31/trades', 'okx', '2026-01-31')
    """
    found: dict[str, LogRef] = {}
    for text in (paths,) if isinstance(paths, str) else paths:
        for log in _logs_of(text):
            known = found.setdefault(log.name, log)
            if known.path != log.path:
                raise InvalidOption(
                    f"two logs have the same name: name={log.name}, {known.path} and {log.path}",
                    hint="read them separately, or with a glob that matches both",
                )
    logs = found.values() if options.view not in _OF_MARKETS else _without_raw(found.values())
    return sorted(log for log in logs if _wanted(log, options))


def _logs_of(text: str) -> Iterator[LogRef]:
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    if "://" in path:
        yield _described(path, path, kind_of(path))
        return
    if not glob.has_magic(path) or os.path.lexists(path):
        top = os.path.abspath(path)
        yield from _below(top, None)
        return
    matches = sorted(os.path.abspath(match) for match in glob.iglob(path))
    if not matches:
        raise FileNotFoundError(2, "nothing matches this glob", text)
    above = _literal_prefix(os.path.abspath(path))
    logs = [log for match in matches if os.path.isdir(match) for log in _below(match, above)]
    if not logs:
        raise NotALog("no match of this glob holds a log", path=text)
    yield from logs


def _below(top: str, above: str | None) -> Iterator[LogRef]:
    """The logs at or below a directory; their names are relative to `above` if it is given."""
    try:
        kind = kind_of(top)
    except NotALog:
        kind = None
    if kind is not None:
        yield _renamed(_described(top, os.path.basename(top), kind), above)
        return
    if not os.path.isdir(top):
        raise NotALog("this is a file, not a log", path=top)
    # Logs in the control directory of the sink are not published yet.
    queues = [path for path in find_queues(top) if CONTROL not in _parts(path, top)]
    if not queues and above is None:
        raise NotALog(
            "there is no log in this directory",
            path=top,
            hint="give a queue (it holds control.meta), an archive (v1/…) or a bus (streams/…)",
        )
    for path in queues:
        yield _renamed(_described(path, _relative(path, above or top), "queue"), above)


def _renamed(log: LogRef, above: str | None) -> LogRef:
    """The log with its name relative to `above`, if it is given.

    A glob may match logs of two archives, which have the same names below each.
    """
    return log if above is None else replace(log, name=_relative(log.path, above))


def _parts(path: str, top: str) -> list[str]:
    return os.path.relpath(path, top).split(os.sep)


def _relative(path: str, above: str) -> str:
    return os.path.relpath(path, above).removesuffix("/queue")


def _literal_prefix(pattern: str) -> str:
    parts = pattern.split(os.sep)
    magic = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return os.sep.join(parts[:magic]) or os.sep


def _described(path: str, name: str, kind: str) -> LogRef:
    """The log with names from its path, if that is one of a bus or an archive."""
    match path.split(os.sep)[-6:]:
        case [*_, "streams", "clean", venue, symbol, stream, "queue"]:
            name = f"clean/{venue}/{symbol}/{stream}"
            return LogRef(name, path, venue, symbol, None, stream, kind)
        case [*_, "streams", "raw", venue, "queue"]:
            return LogRef(f"raw/{venue}", path, venue, None, None, "raw", kind)
        case [*_, "raw", "v1", venue, date, "raw"] if is_day(date):
            return LogRef(f"raw/{venue}/{date}", path, venue, None, date, "raw", kind)
        case [*_, "v1", venue, symbol, date, stream] if is_day(date):
            name = f"{venue}/{symbol}/{date}/{stream}"
            return LogRef(name, path, venue, symbol, date, stream, kind)
        case [*_, "orders", "queue", strategy, ("orders_out" | "orders_in") as stream]:
            return LogRef(f"orders/{strategy}/{stream}", path, None, None, None, stream, kind)
    return LogRef(name, path, kind=kind)


def _without_raw(logs: Iterable[LogRef]) -> list[LogRef]:
    clean = {(log.venue, log.date) for log in logs if log.symbol is not None}
    return [log for log in logs if log.stream != RAW or (log.venue, log.date) not in clean]


def _wanted(log: LogRef, options: ReadOptions) -> bool:
    if options.symbols is None:
        return True
    return any(
        venue in (None, log.venue or venue) and symbol == (log.symbol or symbol)
        for venue, symbol in options.symbols
    )
