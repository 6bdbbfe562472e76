"""Feeds from a file: the queues that a router requires at its start.

```toml
[[feed]]
venue = "binance_spot"

[[feed]]
venue = "cme"
path = "/mnt/colo/cme/queue"    # instead of streams/raw/VENUE/queue of the bus
required = false                # may be missing
```
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tapewire.bus.layout import Layout
from tapewire.bus.names import check_name
from tapewire.config import load_toml
from tapewire.errors import InvalidOption, TapewireError
from tapewire.files import is_queue
from tapewire.text import did_you_mean

__all__ = ["Feed", "MissingFeeds", "load_feeds"]


@dataclass(frozen=True)
class Feed:
    """A feed of the configuration.

    Attributes:
        venue: Name of the venue.
        path: Directory of its queue.
        required: Whether the router needs it to start.
        present: Whether the queue existed when the configuration was loaded.
    """

    venue: str
    path: Path
    required: bool = True
    present: bool = False


class MissingFeeds(TapewireError, FileNotFoundError):
    """Required feeds have no queue.

    Attributes:
        missing: The feeds.
    """

    missing: tuple[Feed, ...] = ()


def load_feeds(file: str | os.PathLike[str], layout: Layout) -> list[Feed]:
    r"""Load the feeds of a TOML file, in its order, and check that required ones have a queue.

    A relative `path` is relative to the directory of the file. One error names all missing feeds,
    their paths, and what to do.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> layout = bus.Layout(tmp / "bus")
        >>> with tw.open_publisher(layout.streams.raw("binance_spot"), segment_bytes=65536):
        ...     _ = (tmp / "router.toml").write_text('[[feed]]\nvenue = "binance_spot"')
        ...     [feed.venue for feed in bus.load_feeds(tmp / "router.toml", layout)]
        ['binance_spot']

    Raises:
        MissingFeeds: Required feeds have no queue.
        InvalidOption: The content of the file is invalid.
        FileNotFoundError: The file does not exist.
    """
    where = os.fspath(file)
    table = load_toml(file)
    try:
        _known_keys("the file", table, {"feed"})
        entries = table.get("feed")
        if not isinstance(entries, list) or not entries:
            raise InvalidOption("the file has no feed", hint='add [[feed]] with venue = "…"')
        directory, raw = Path(where).parent, layout.streams.raw_paths()
        feeds = [_feed(n, entry, directory, raw) for n, entry in enumerate(entries, 1)]
        _check_unique_venues(feeds)
    except InvalidOption as error:
        error.path = where
        raise
    missing = tuple(feed for feed in feeds if feed.required and not feed.present)
    if missing:
        raise _missing(missing, where)
    return feeds


_KEYS = {field.name for field in fields(Feed)} - {"present"}


def _feed(number: int, entry: Any, directory: Path, raw: Callable[[str], Path]) -> Feed:
    which = f"[[feed]] number {number}"
    if not isinstance(entry, dict):
        raise InvalidOption(f"{which} must be a table: {entry!r}", hint="write [[feed]]")
    _known_keys(which, entry, _KEYS)
    venue, path, required = entry.get("venue"), entry.get("path"), entry.get("required", True)
    if venue is None:
        raise InvalidOption(f"{which} has no venue", hint='add venue = "…"')
    if path is not None and (not isinstance(path, str) or not path or "\0" in path):
        raise InvalidOption(f"{which}: path must be a non-empty string: path={path!r}")
    if not isinstance(required, bool):
        raise InvalidOption(f"{which}: required must be true or false: required={required!r}")
    try:
        check_name("venue", venue)
        queue = raw(venue) if path is None else directory / path
    except TapewireError as error:
        raise InvalidOption(f"{which}: {error.message}", hint=error.hint) from error
    return Feed(venue, queue, required, is_queue(queue))


def _known_keys(where: str, table: dict[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            raise InvalidOption(
                f"{where} has an unknown key: {key!r}", hint=did_you_mean(key, known)
            )


def _check_unique_venues(feeds: list[Feed]) -> None:
    seen: set[str] = set()
    for feed in feeds:
        if feed.venue in seen:
            raise InvalidOption(f"duplicate venue: venue={feed.venue!r}")
        seen.add(feed.venue)


def _missing(missing: tuple[Feed, ...], where: str) -> MissingFeeds:
    places = ", ".join(f"{feed.venue!r} at {os.fspath(feed.path)!r}" for feed in missing)
    verb = "feed has" if len(missing) == 1 else "feeds have"
    error = MissingFeeds(
        f"{len(missing)} required {verb} no queue: {places}",
        path=where,
        hint="start the feed first, correct its path, or set required = false",
    )
    error.missing = missing
    return error
