"""Where everything lies: the folders of a bus and of an archive, from validated names.

```text
ROOT/streams/raw/VENUE/queue                    a feed, all symbols of a venue
ROOT/streams/clean/VENUE/SYMBOL/STREAM/queue    one stream of one symbol
ROOT/orders/queue/STRATEGY/orders_out           strategy → router; READY and LEASE lie in here
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


# What jobs and the sink of Spark keep beside the logs: marks, manifests, what is not published yet.
# Spark takes nothing in it for data.
CONTROL = "_tapewire"
DECIDED = f"{CONTROL}/batches/*/*.decided.json"  # batches that are still to be published
ORDERS_OUT = "orders_out"
ORDERS_IN = "orders_in"


class Layout:
    """The folders of a bus. Makes nothing: opening a publisher makes the queue's folder.

    Names are checked (`InvalidName`), and a link that leads out of `root` is refused.

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
        """The queue of everything that a venue's feed receives."""
        return path_below(self.root, "streams", "raw", check_name("venue", venue), "queue")

    def raw_paths(self) -> Callable[[str], Path]:
        """`raw` for many venues: what their paths have in common is resolved once."""
        paths = PathsBelow(self.root, "streams", "raw")
        return lambda venue: paths.path(check_name("venue", venue), "queue")

    def clean(self, venue: str, symbol: str, stream: str) -> Path:
        """The queue of one stream ("book", "trades") of one symbol."""
        names = _names(venue=venue, symbol=symbol, stream=stream)
        return path_below(self.root, "streams", "clean", *names, "queue")

    def venues(self) -> list[str]:
        """Venues that have a raw folder, sorted; whether a queue is in it is not asked."""
        return directories_below(path_below(self.root, "streams", "raw"))

    def clean_streams(self) -> list[tuple[str, str, str]]:
        """``(venue, symbol, stream)`` of each clean folder, sorted."""
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
        orders_out: Its orders, read by the router. `READY` and `LEASE` lie in this folder.
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
    def folder(self) -> Path:
        """The folder that holds one folder a strategy; what a router watches."""
        return path_below(self.root, "orders", "queue")

    def strategy(self, strategy: str) -> StrategyEndpoints:
        """The queues of a strategy."""
        check_name("strategy", strategy)
        return StrategyEndpoints(
            strategy,
            path_below(self.root, "orders", "queue", strategy, ORDERS_OUT),
            path_below(self.root, "orders", "queue", strategy, ORDERS_IN),
        )

    def strategies(self) -> list[str]:
        """Ids of the strategies that have a folder, ready or not, sorted."""
        return directories_below(self.folder)


@dataclass(frozen=True, init=False)
class ArchiveLayout:
    """The folders of an archive: one log a venue, symbol, UTC day and stream.

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
        """The log of one stream of one symbol on one day."""
        venue, symbol, stream = _names(venue=venue, symbol=symbol, stream=stream)
        return path_below(self.root, "v1", venue, symbol, _day(date), stream)

    def raw(self, venue: str, date: str | dt.date) -> Path:
        """The log of a whole venue on one day, as a tap of a raw queue writes it."""
        return path_below(self.root, "raw", "v1", check_name("venue", venue), _day(date), "raw")

    def venues(self) -> list[str]:
        """Venues with a log of a symbol, sorted."""
        return directories_below(path_below(self.root, "v1"))

    def symbols(self, venue: str) -> list[str]:
        """Symbols of a venue, sorted."""
        return directories_below(path_below(self.root, "v1", check_name("venue", venue)))

    def dates(self, venue: str, symbol: str) -> list[str]:
        """Days of a symbol as ``YYYY-MM-DD``, sorted; folders that are no day are passed over."""
        names = _names(venue=venue, symbol=symbol)
        return [d for d in directories_below(path_below(self.root, "v1", *names)) if is_day(d)]


def _names(**names: str) -> list[str]:
    return [check_name(what, name) for what, name in names.items()]


def is_day(text: str) -> bool:
    """Whether this is a day as an archive writes it: ``YYYY-MM-DD``."""
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def _day(date: str | dt.date) -> str:
    if isinstance(date, dt.datetime):
        if date.utcoffset() is None:
            raise InvalidName(
                f"a day of the archive is a UTC day: date={date!r} has no zone",
                hint="give a datetime with a zone, a date, or 'YYYY-MM-DD'",
            )
        date = date.astimezone(dt.UTC).date()
    if isinstance(date, dt.date):
        return date.isoformat()
    if not is_day(date):
        raise InvalidName(f"not a valid day: date={date!r}", hint="give 'YYYY-MM-DD' or a date")
    return date
