"""The directory layout of a bus and of an archive, from validated names.

```text
ROOT/streams/raw/VENUE/queue                    a feed, all symbols of a venue
ROOT/streams/clean/VENUE/SYMBOL/STREAM/queue    one stream of one symbol
ROOT/orders/queue/STRATEGY/orders_out           strategy → router; contains READY and LEASE
ROOT/orders/queue/STRATEGY/orders_in            router → strategy
```
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tapewire.bus.names import check_name
from tapewire.errors import InvalidName
from tapewire.files import PathsBelow, directories_below, path_below

__all__ = [
    "ArchiveLayout",
    "Layout",
    "OrdersLayout",
    "StrategyEndpoints",
    "StreamsLayout",
]


# Files of Spark jobs and the Spark sink beside the logs: marks, manifests, unpublished logs. Spark
# ignores directories whose name starts with an underscore.
CONTROL = "_tapewire"
DECIDED = f"{CONTROL}/batches/*/*.decided.json"  # batches that are not published yet
ORDERS_OUT = "orders_out"
ORDERS_IN = "orders_in"


class Layout:
    """The directories of a bus. Creates nothing: `open_publisher` creates the queue's directory.

    Names are checked, and links that lead out of `root` are refused; both raise `InvalidName`.

    Example:
        >>> from tapewire import bus
        >>> layout = bus.Layout("/var/lib/tapewire")
        >>> layout.streams.raw("binance_spot").as_posix()
        '/var/lib/tapewire/streams/raw/binance_spot/queue'
        >>> layout.orders.strategy("alpha").orders_out.as_posix()
        '/var/lib/tapewire/orders/queue/alpha/orders_out'
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.streams = StreamsLayout(self.root)
        self.orders = OrdersLayout(self.root)

    def __repr__(self) -> str:
        return f"Layout({os.fspath(self.root)!r})"


@dataclass(frozen=True)
class StreamsLayout:
    """Market data: `Layout.streams`."""

    root: Path

    def raw(self, venue: str) -> Path:
        """Return the queue with everything that a venue's feed receives."""
        return path_below(self.root, "streams", "raw", check_name("venue", venue), "queue")

    def raw_paths(self) -> Callable[[str], Path]:
        """Return a function like `raw` that resolves the common part of the paths once."""
        paths = PathsBelow(self.root, "streams", "raw")
        return lambda venue: paths.path(check_name("venue", venue), "queue")

    def clean(self, venue: str, symbol: str, stream: str) -> Path:
        """Return the queue of one stream ("book", "trades") of one symbol."""
        names = _names(venue=venue, symbol=symbol, stream=stream)
        return path_below(self.root, "streams", "clean", *names, "queue")

    def venues(self) -> list[str]:
        """Return the venues with a raw directory, sorted; it need not contain a queue."""
        return directories_below(path_below(self.root, "streams", "raw"))

    def clean_streams(self) -> list[tuple[str, str, str]]:
        """Return ``(venue, symbol, stream)`` of each clean directory, sorted."""
        clean = path_below(self.root, "streams", "clean")
        return [
            (venue, symbol, stream)
            for venue in directories_below(clean)
            for symbol in directories_below(clean / venue)
            for stream in directories_below(clean / venue / symbol)
        ]


@dataclass(frozen=True)
class StrategyEndpoints:
    """The two queues of a strategy.

    Attributes:
        strategy: The strategy's id.
        orders_out: Its orders, read by the router. Contains `READY` and `LEASE`.
        orders_in: Acknowledgements and fills, written by the router.
    """

    strategy: str
    orders_out: Path
    orders_in: Path


@dataclass(frozen=True)
class OrdersLayout:
    """Orders and fills: `Layout.orders`."""

    root: Path

    @property
    def directory(self) -> Path:
        """The directory with one directory per strategy, which a router watches."""
        return path_below(self.root, "orders", "queue")

    def strategy(self, strategy: str) -> StrategyEndpoints:
        """Return the queues of a strategy."""
        check_name("strategy", strategy)
        return StrategyEndpoints(
            strategy,
            path_below(self.root, "orders", "queue", strategy, ORDERS_OUT),
            path_below(self.root, "orders", "queue", strategy, ORDERS_IN),
        )

    def strategies(self) -> list[str]:
        """Return the ids of all strategies with a directory, ready or not, sorted."""
        return directories_below(self.directory)


@dataclass(frozen=True, init=False)
class ArchiveLayout:
    """The directories of an archive: one log per venue, symbol, UTC day and stream.

    Example:
        >>> from tapewire import bus
        >>> archive = bus.ArchiveLayout("archive/")
        >>> archive.log("binance_spot", "BTCUSDT", "2026-01-31", "book").as_posix()
        'archive/v1/binance_spot/BTCUSDT/2026-01-31/book'
        >>> archive.raw("binance_spot", "2026-01-31").as_posix()
        'archive/raw/v1/binance_spot/2026-01-31/raw'
    """

    root: Path

    def __init__(self, root: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "root", Path(root))

    def log(self, venue: str, symbol: str, date: str | dt.date, stream: str) -> Path:
        """Return the log of one stream of one symbol on one day."""
        venue, symbol, stream = _names(venue=venue, symbol=symbol, stream=stream)
        return path_below(self.root, "v1", venue, symbol, _day(date), stream)

    def raw(self, venue: str, date: str | dt.date) -> Path:
        """Return the log of all symbols of a venue on one day, written by a tap of a raw queue."""
        return path_below(self.root, "raw", "v1", check_name("venue", venue), _day(date), "raw")

    def venues(self) -> list[str]:
        """Return the venues with logs of symbols, sorted."""
        return directories_below(path_below(self.root, "v1"))

    def symbols(self, venue: str) -> list[str]:
        """Return the symbols of a venue, sorted."""
        return directories_below(path_below(self.root, "v1", check_name("venue", venue)))

    def dates(self, venue: str, symbol: str) -> list[str]:
        """Return the days of a symbol as ``YYYY-MM-DD``, sorted; skip other directories."""
        names = _names(venue=venue, symbol=symbol)
        return [d for d in directories_below(path_below(self.root, "v1", *names)) if is_day(d)]


def _names(**names: str) -> list[str]:
    return [check_name(what, name) for what, name in names.items()]


def is_day(text: str) -> bool:
    """Whether `text` is a day in the form ``YYYY-MM-DD``."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def _day(date: str | dt.date) -> str:
    if isinstance(date, dt.datetime):
        if date.utcoffset() is None:
            raise InvalidName(
                f"date has no zone, but archives have UTC days: date={date!r}",
                hint="pass a datetime with a zone, a date, or 'YYYY-MM-DD'",
            )
        date = date.astimezone(dt.UTC).date()
    if isinstance(date, dt.date):
        return date.isoformat()
    if not is_day(date):
        raise InvalidName(f"not a valid day: date={date!r}", hint="pass 'YYYY-MM-DD' or a date")
    return date
