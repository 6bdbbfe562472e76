"""The option types of `open_publisher` and `open_subscriber`."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapewire.clock import to_ns
from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    from tapewire.clock import TimeLike

__all__ = [
    "Block",
    "BusySpin",
    "FlushEvery",
    "Raise",
    "Retention",
    "Seq",
    "Sleep",
    "SpinThenPark",
    "Time",
    "WriterConfig",
]

MAX_TOML_DEPTH = 64
_LINES_SHOWN = 5
_NAME_SHOWN = 60


def check_at_least(name: str, value: object, least: float, *, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{name} must be a number: {name}={value!r}")
    if not value >= least:  # also refuses NaN
        raise InvalidOption(f"{name} must be at least {least}: {name}={value!r}")


def check_whole(
    name: str, value: object, least: int, most: int = 2**63 - 1, *, optional: bool = False
) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{name} must be an int: {name}={value!r}")
    if not least <= value <= most:
        raise InvalidOption(f"{name} must be from {least} to {most}: {name}={value!r}")


def load_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file. All TOML files are read by this function.

    Raises:
        InvalidOption: The file is not TOML, has an integer that does not fit in 64 bits, or is
            nested deeper than `MAX_TOML_DEPTH`. The error names the file and the line or the
            option.
        FileNotFoundError: The file does not exist.
    """
    import tomllib

    with open(path, "rb") as file:
        content = file.read()
    try:
        table = tomllib.loads(content.decode())
        _check_toml_values(table)
    except InvalidOption as error:
        error.path = os.fspath(path)
        raise
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidOption(f"not TOML: {error}", path=os.fspath(path)) from error
    except ValueError as error:  # from `int`, which limits the number of digits
        at = _lines_of_long_integers(content.decode())
        raise InvalidOption(
            f"integer out of range: {at}, must fit in 64 bits", path=os.fspath(path)
        ) from error
    return table


def _lines_of_long_integers(text: str) -> str:
    """Return the lines with more digits than `int` accepts: ``line=2`` or ``lines=2,9``."""
    long_run = re.compile(rf"[0-9](?:_?[0-9]){{{sys.get_int_max_str_digits()},}}")
    lines = [str(n) for n, line in enumerate(text.split("\n"), 1) if long_run.search(line)]
    return f"line{'s' if len(lines) > 1 else ''}={','.join(lines[:_LINES_SHOWN])}"


def _check_toml_values(table: dict[str, Any]) -> None:
    """Reject integers beyond 64 bits, as the TOML specification requires, and deep nesting.

    `repr` fails for both, and so would every error message that shows such a value.
    """
    # (value, its depth, (the same of its parent, its key)), visited in the order of the list.
    values: list[tuple[Any, int, Any]] = [(table, 0, None)]
    for value, depth, where in values:
        if depth > MAX_TOML_DEPTH:
            raise InvalidOption(
                f"nested too deep: option={_option_name(where)}, max={MAX_TOML_DEPTH} levels"
            )
        if isinstance(value, dict):
            values += [(each, depth + 1, (where, key)) for key, each in value.items()]
        elif isinstance(value, list):
            values += [(each, depth + 1, (where, n)) for n, each in enumerate(value)]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidOption(
                f"integer out of range: option={_option_name(where)}, must fit in 64 bits"
            )


def _option_name(where: Any) -> str:
    """Return the dotted name of a value in a TOML file, such as ``feed[2].venue``."""
    parts = []
    while where is not None:
        where, key = where
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    name = "".join(reversed(parts)).removeprefix(".")
    return name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}…"


@dataclass(frozen=True)
class Raise:
    """When the queue is full, raise `QueueFull` immediately."""


@dataclass(frozen=True)
class Block:
    """When the queue is full, wait for readers; raise `QueueFull` after `timeout` seconds."""

    timeout: float | None = None

    def __post_init__(self) -> None:
        check_at_least("timeout", self.timeout, 0, optional=True)


@dataclass(frozen=True)
class Retention:
    """Delete segments that every reader that counts has committed past.

    A reader counts while it is pinned, or alive (a heartbeat within `reader_ttl` seconds) and at
    most `max_reader_lag_bytes` behind. Readers update their heartbeat once a second: set
    `reader_ttl` to a few seconds or more.
    """

    reader_ttl: float = 30.0
    max_reader_lag_bytes: int = 10 << 30

    def __post_init__(self) -> None:
        check_at_least("reader_ttl", self.reader_ttl, 0)
        check_whole("max_reader_lag_bytes", self.max_reader_lag_bytes, 0)


@dataclass(frozen=True)
class FlushEvery:
    """Sync to disk in a native thread after `records` or `seconds`, whichever comes first."""

    records: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_whole("records", self.records, 1, optional=True)
        check_at_least("seconds", self.seconds, 0.0001, optional=True)
        if self.records is None and self.seconds is None:
            raise InvalidOption("FlushEvery needs records or seconds")


@dataclass(frozen=True)
class BusySpin:
    """Wait by polling without a pause: lowest latency, one core busy."""


@dataclass(frozen=True)
class SpinThenPark:
    """Poll for `spin_us` microseconds, then sleep until the writer wakes the reader."""

    spin_us: float = 10.0

    def __post_init__(self) -> None:
        check_at_least("spin_us", self.spin_us, 0)


@dataclass(frozen=True)
class Sleep:
    """Poll every `seconds`, at least ten times a second; needs no write permission."""

    seconds: float

    def __post_init__(self) -> None:
        check_at_least("seconds", self.seconds, 0)


@dataclass(frozen=True)
class Seq:
    """Start at the first record with at least this sequence number."""

    seq: int

    def __post_init__(self) -> None:
        check_whole("seq", self.seq, 0, 2**64 - 1)


@dataclass(frozen=True, init=False)
class Time:
    """Start at the first record at which the time of the log has reached this time.

    Example:
        >>> Time("1970-01-01T00:00:01Z").timestamp_ns
        1000000000
    """

    timestamp_ns: int

    def __init__(self, time: TimeLike) -> None:
        object.__setattr__(self, "timestamp_ns", to_ns(time))


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """All options of `open_publisher` as one immutable value.

    Example:
        >>> WriterConfig.live().require_prealloc
        True
        >>> WriterConfig(segment_bytes=1 << 20).replace(checksum=False).checksum
        False
    """

    segment_bytes: int | None = None
    max_bytes: int | None = None
    max_segments: int | None = None
    when_full: Raise | Block = Raise()
    preallocate: bool = True
    require_prealloc: bool = False
    prealloc_wait: float = 0.001
    defer_seal_sync: bool = True
    memlock: bool = False
    checksum: bool = True
    index_stride: int = 4096
    retention: Retention | None = None
    flush: FlushEvery | None = None
    first_seq: int | None = None
    sparse: bool | None = None

    def __post_init__(self) -> None:
        check_whole("segment_bytes", self.segment_bytes, 128, optional=True)
        check_whole("max_bytes", self.max_bytes, 1, optional=True)
        check_whole("max_segments", self.max_segments, 1, optional=True)
        check_whole("index_stride", self.index_stride, 1, 2**32 - 1)
        check_whole("first_seq", self.first_seq, 0, optional=True)
        check_at_least("prealloc_wait", self.prealloc_wait, 0)
        _is("when_full", self.when_full, Raise, Block)
        _is("retention", self.retention, Retention, type(None))
        _is("flush", self.flush, FlushEvery, type(None))
        _is("sparse", self.sparse, bool, type(None))
        for name in ("preallocate", "require_prealloc", "defer_seal_sync", "memlock", "checksum"):
            _is(name, getattr(self, name), bool)
        if self.require_prealloc and not self.preallocate:
            raise InvalidOption("require_prealloc=True needs preallocate=True")

    def replace(self, **changes: Any) -> WriterConfig:
        """Return a copy with some options changed."""
        unknown = set(changes) - {f.name for f in dataclasses.fields(self)}
        if unknown:
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        return dataclasses.replace(self, **changes)

    @classmethod
    def live(cls, **changes: Any) -> WriterConfig:
        """Options for the hot path: a roll never waits for the disk, pages are locked in memory."""
        return cls(require_prealloc=True, memlock=True).replace(**changes)

    @classmethod
    def archive(cls, **changes: Any) -> WriterConfig:
        """Options for long-term storage: no preallocated segment, all synced within a second."""
        return cls(
            preallocate=False,
            defer_seal_sync=False,
            flush=FlushEvery(records=10_000, seconds=1.0),
        ).replace(**changes)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], section: str = "writer") -> WriterConfig:
        """Read the options from the table `section` of a TOML file.

        `preset = "live"` or `"archive"` starts from that preset; `when_full` is ``"raise"`` or a
        table ``{block = 1.0}``; `retention` and `flush` are tables with the fields of their
        classes.
        """
        where = os.fspath(path)
        document = load_toml(path)
        if not isinstance(document.get(section), dict):
            raise InvalidOption(f"no table [{section}]", path=where)
        try:
            return cls._from_table(dict(document[section]))
        except InvalidOption as error:
            error.path = where
            raise
        except TypeError as error:
            raise InvalidOption(f"[{section}]: {error}", path=where) from error

    @classmethod
    def _from_table(cls, table: dict[str, Any]) -> WriterConfig:
        preset = table.pop("preset", None)
        if preset not in (None, "live", "archive"):
            raise InvalidOption(f'preset must be "live" or "archive": preset={preset!r}')
        base = cls.live() if preset == "live" else cls.archive() if preset == "archive" else cls()
        if "retention" in table:
            table["retention"] = Retention(**table["retention"])
        if "flush" in table:
            table["flush"] = FlushEvery(**table["flush"])
        if "when_full" in table:
            table["when_full"] = _when_full(table["when_full"])
        return base.replace(**table)


def _when_full(value: Any) -> Raise | Block:
    if value == "raise":
        return Raise()
    if isinstance(value, dict) and set(value) == {"block"}:
        return Block(value["block"])
    raise InvalidOption(f'when_full must be "raise" or {{block = SECONDS}}: when_full={value!r}')


def _is(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        raise InvalidOption(f"{name} must be {wanted}: {name}={value!r}")
