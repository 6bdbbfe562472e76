"""Feeds from a file: what a router must find at its start, or not start at all.

```toml
[[feed]]
venue = "binance_spot"

[[feed]]
venue = "cme"
path = "/mnt/colo/cme/queue"    # elsewhere than streams/raw/VENUE/queue of the bus
required = false                # may come later
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
        venue: Its name.
        path: The folder of its queue.
        required: Whether the router may not start without it.
        present: Whether there was a queue when the configuration was loaded.
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
    r"""The feeds that a TOML file names, in its order; every required one has a queue.

    `path`, where given, is taken from the folder of the file. One error names all feeds that are
    missing, where each was looked for, and what to do.

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
        InvalidOption: The file is not what it should be.
        FileNotFoundError: There is no such file.
    """
    where = os.fspath(file)
    table = load_toml(file)
    try:
        _known_keys("the file", table, {"feed"})
        entries = table.get("feed")
        if not isinstance(entries, list) or not entries:
            raise InvalidOption("no feed", hint='name each feed: [[feed]], then venue = "…"')
        directory, raw = Path(where).parent, layout.streams.raw_paths()
        feeds = [_feed(n, entry, directory, raw) for n, entry in enumerate(entries, 1)]
        _no_venue_twice(feeds)
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
        raise InvalidOption(f"{which}: path must be the text of a path: path={path!r}")
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


def _no_venue_twice(feeds: list[Feed]) -> None:
    seen: set[str] = set()
    for feed in feeds:
        if feed.venue in seen:
            raise InvalidOption(f"a venue is named twice: venue={feed.venue!r}")
        seen.add(feed.venue)


def _missing(missing: tuple[Feed, ...], where: str) -> MissingFeeds:
    places = ", ".join(f"{feed.venue!r} at {os.fspath(feed.path)!r}" for feed in missing)
    verb = "feed has" if len(missing) == 1 else "feeds have"
    error = MissingFeeds(
        f"{len(missing)} required {verb} no queue: {places}",
        path=where,
        hint="start the feed first, correct its path, or say required = false",
    )
    error.missing = missing
    return error
