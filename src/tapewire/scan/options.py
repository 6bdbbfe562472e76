"""The options of a read, as of ``spark.read.format("tapewire")``, checked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from tapewire.clock import to_ns
from tapewire.errors import InvalidOption
from tapewire.text import did_you_mean

__all__ = ["MAX_PARTITIONS", "VIEWS", "ReadOptions"]

VIEWS = ("records", "messages", "trades", "book", "features", "gaps")
MAX_PARTITIONS = 100_000

# An option that has no effect in a view is refused there.
_ONLY_IN = {
    "types": ("records",),
    "type": ("messages",),
    "module": ("messages",),
    "levels": ("book", "features"),
    "flat": ("book",),
    "sample": ("book", "features"),
    "features": ("features",),
    "on_gap": ("book", "features"),
    "prices": ("trades", "book"),
    "instruments": ("trades", "book", "features", "gaps"),
    "max_skew": ("book", "features"),
}


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, with defaults; `parse` builds them from strings.

    Attributes:
        paths: What to read: logs, archives, bus roots, or globs of those.
        view: What a row is.
        seq_from: Sequence number of the first record.
        seq_to: Sequence number after the last record.
        time_from: Begin at the first record at or after this time, nanoseconds.
        time_to: End before the first record at or after this time, nanoseconds.
        types: Type ids of `records`; None: all.
        symbols: ``(venue or None, symbol)`` of each symbol; None: all.
        columns: The columns, in this order; None: all of the view.
        partitions: Number of slices; None: by cores and bytes.
        type: Name or id of the message type of `messages`.
        module: Module that defines that message type; None: use types.json.
        levels: Number of levels on each side of `book`.
        sample: "event", "trade", or an interval such as "100ms".
        features: Names of the features of `features`; None: all.
        on_gap: What a replay does at a gap; None: its default.
        instruments: Path of an instruments.json; None: the files nearest to the logs.
        flat: Whether each level of `book` has columns of its own.
        prices: "scaled" or "decimal".
        on_damage: "raise" or "skip".
        shared: Whether every worker sees the same files.
        reader: Name of the pinned reader of a streaming query.
        state: Directory for the state of a streaming query.
        max_rows: Maximum number of rows of a micro-batch.
        max_bytes: Maximum number of bytes of logs that a micro-batch reads.
        max_skew: For how many nanoseconds of recorded time an idle log of an instrument holds back
            the others.

    Example:
        >>> options = ReadOptions.parse({"path": "bus/md", "Types": "0x2001, 7", "seq_from": "10"})
        >>> options.view, options.types, options.seq_from
        ('records', (7, 8193), 10)
        >>> ReadOptions.parse({"path": "bus/md", "typs": "7"})
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: no such option: typs; did you mean types?
    """

    paths: tuple[str, ...] = ()
    view: str = "records"
    seq_from: int | None = None
    seq_to: int | None = None
    time_from: int | None = None
    time_to: int | None = None
    types: tuple[int, ...] | None = None
    symbols: tuple[tuple[str | None, str], ...] | None = None
    columns: tuple[str, ...] | None = None
    partitions: int | None = None
    type: str | None = None
    module: str | None = None
    levels: int = 10
    sample: str = "event"
    features: tuple[str, ...] | None = None
    on_gap: str | None = None
    instruments: str | None = None
    flat: bool = False
    prices: str = "scaled"
    on_damage: str = "raise"
    shared: bool = False
    reader: str | None = None
    state: str | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    max_skew: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options from strings, as Spark passes them; names in any case.

        Raises:
            InvalidOption: An option does not exist, or its value is invalid.
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        values: dict[str, Any] = {"paths": _paths(given)}
        for name, text in given.items():
            if name not in _PARSERS:
                raise InvalidOption(
                    f"no such option: {name}", hint=did_you_mean(name, ["path", *_PARSERS])
                )
            values[name] = _PARSERS[name](name, text.strip())
        parsed = cls(**values)
        parsed._check(given)
        return parsed

    def _check(self, given: Mapping[str, str]) -> None:
        for name, views in _ONLY_IN.items():
            if name in given and self.view not in views:
                raise InvalidOption(
                    f"this view has no such option: {name}, view={self.view}",
                    hint=f"the option is for {_and(views)}",
                )
        for low, high in (("seq_from", "seq_to"), ("time_from", "time_to")):
            first, end = getattr(self, low), getattr(self, high)
            if first is not None and end is not None and first > end:
                raise InvalidOption(
                    f"{low} must not be greater than {high}: {low}={first}, {high}={end}"
                )
        if self.view == "messages" and self.type is None:
            raise InvalidOption(
                "the view messages needs a type", hint='give option("type", NAME or id)'
            )

    def asks_for(self, venue: str, symbol: str) -> bool:
        """Whether `symbols` includes this symbol; without `symbols`, all are included."""
        asked = self.symbols
        return asked is None or (None, symbol) in asked or (venue, symbol) in asked

    def from_here(self) -> ReadOptions:
        """The options with an absolute path of instruments.json: executors may run elsewhere."""
        if self.instruments is None:
            return self
        return replace(self, instruments=os.path.abspath(self.instruments))

    def replace(self, **changes: Any) -> ReadOptions:
        """A copy with other values."""
        return replace(self, **changes)


def _paths(given: dict[str, str]) -> tuple[str, ...]:
    # Spark passes `load([a, b])` as a JSON list in the option `paths`.
    several = given.pop("paths", None)
    one = given.pop("path", None)
    paths: Any = []
    if several is not None:
        try:
            paths = json.loads(several)
        except ValueError:
            paths = [None]
        if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
            raise InvalidOption(f"paths must be a JSON list of strings: paths={several!r:.80}")
    if one is not None:
        paths = [one, *paths]
    if not paths or not all(paths):
        raise InvalidOption(
            "no path is given", hint='give a log, an archive or a bus: .load("bus/md")'
        )
    return tuple(paths)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidOption(f"{name} is empty")
    return text


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        value = text.lower()
        if value not in allowed:
            raise InvalidOption(f"{name} must be one of {', '.join(allowed)}: {name}={text!r:.80}")
        return value

    return parse


def _flag(name: str, text: str) -> bool:
    return _one_of("true", "false")(name, text) == "true"


def _number(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise InvalidOption(f"{name} must be an integer: {name}={text!r:.80}") from None
        if not low <= value <= high:
            raise InvalidOption(f"{name} must be from {low} to {high}: {name}={value}")
        return value

    return parse


def _time(name: str, text: str) -> int:
    try:
        ns = int(text) if text.isascii() and text.lstrip("-").isdigit() else to_ns(text)
    except ValueError as error:
        raise InvalidOption(
            f"invalid time: {name}={text!r:.80} ({error})",
            hint="give nanoseconds, or ISO 8601 with a time zone: 2024-03-01T12:00Z",
        ) from None
    if not -(2**63) <= ns < 2**63:
        raise InvalidOption(f"time out of range: {name}={text!r:.80}")
    return ns


def _list(name: str, text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise InvalidOption(f"{name} has an empty item: {name}={text!r:.80}")
    return items


def _columns(name: str, text: str) -> tuple[str, ...]:
    items = _list(name, text)
    repeated = [item for i, item in enumerate(items) if item in items[:i]]
    if repeated:
        raise InvalidOption(f"{name} has a duplicate: {repeated[0]}")
    return items


def _types(name: str, text: str) -> tuple[int, ...]:
    found = set()
    for item in _list(name, text):
        try:
            type_id = int(item, 0)
        except ValueError:
            type_id = -1
        if not 0 <= type_id <= 0xFFFE:
            raise InvalidOption(
                f"a type id must be from 0 to 0xFFFE: {name}={item!r:.80}",
                hint="give decimal or 0x… numbers, separated by commas",
            )
        found.add(type_id)
    return tuple(sorted(found))


def _symbols(name: str, text: str) -> tuple[tuple[str | None, str], ...]:
    found: set[tuple[str | None, str]] = set()
    for item in _list(name, text):
        venue, colon, symbol = item.partition(":")
        if not colon:
            venue, symbol = "", item
        if not symbol or (colon and not venue):
            raise InvalidOption(f"a symbol must be SYMBOL or VENUE:SYMBOL: {name}={item!r:.80}")
        found.add((venue or None, symbol))
    return tuple(sorted(found, key=lambda each: (each[1], each[0] or "")))


def _span(name: str, text: str) -> int:
    from tapewire.replay._features import parse_span

    try:
        return parse_span(text)
    except InvalidOption as error:
        raise InvalidOption(f"{name}={text!r:.80}: {error.args[0]}", hint=error.hint) from None


_COUNT = _number(1, 2**63 - 1)

_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "view": _one_of(*VIEWS),
    "seq_from": _number(0, 2**64 - 1),
    "seq_to": _number(0, 2**64 - 1),
    "time_from": _time,
    "time_to": _time,
    "types": _types,
    "symbols": _symbols,
    "columns": _columns,
    "partitions": _number(1, MAX_PARTITIONS),
    "type": _text,
    "module": _text,
    "levels": _number(1, 1000),
    "sample": _text,
    "features": _columns,
    "on_gap": _text,
    "instruments": _text,
    "flat": _flag,
    "prices": _one_of("scaled", "decimal"),
    "on_damage": _one_of("raise", "skip"),
    "shared": _flag,
    "reader": _text,
    "state": _text,
    "max_rows": _COUNT,
    "max_bytes": _COUNT,
    "max_skew": _span,
}
# Every option has a parser, and every parser an attribute.
assert {"paths", *_PARSERS} == {field.name for field in fields(ReadOptions)}
