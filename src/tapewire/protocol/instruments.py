"""The instruments of market data messages, and the file `instruments.json` that names them.

Messages identify an instrument by two numbers. They are hashes of its names and equal on every
host, so logs of several hosts can be read together. The file maps them back to names and holds the
scales and rules of the instrument's book.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from tapewire.errors import InvalidMessage, LayoutConflict, TapewireError
from tapewire.protocol._native import MAX_SCALE, symbol_hash, xxh64
from tapewire.protocol.json_file import (
    InvalidField,
    locked_directory,
    members,
    named_errors,
    open_plain,
    store,
)
from tapewire.protocol.json_stream import stream_entries

__all__ = [
    "FILE_NAME",
    "BookModeName",
    "Instrument",
    "Instruments",
    "RulesName",
    "UnknownInstrument",
    "nearest_file",
]

FILE_NAME = "instruments.json"
FORMAT = "tapewire-instruments"
FORMAT_VERSION = 1
MAX_FILE_BYTES = 64 << 20  # more than MAX_INSTRUMENTS with names of usual length need
MAX_INSTRUMENTS = 200_000
MAX_NAME_BYTES = 64
# From a log in an archive to the archive's root, v1/<venue>/<symbol>/<date>/<stream>, and more.
MAX_LEVELS_UP = 8

RulesName = Literal["szse", "sse", "continuous"]
BookModeName = Literal["l2", "l3"]
_RULES = get_args(RulesName)
_BOOK_MODES = get_args(BookModeName)
_RANGES = (
    ("price_scale", 0, MAX_SCALE),
    ("size_scale", 0, MAX_SCALE),
    ("venue_id", 1, 0xFFFF),
    ("market_id", 1, 0xFFFF_FFFF),
)


class UnknownInstrument(TapewireError, LookupError):
    """No instrument has this name, or several do."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One market of one venue, with the ids and scales of its messages.

    Attributes:
        venue: Name of the venue, without a colon.
        symbol: Symbol as written by the venue.
        price_scale: Decimals of prices, 0 to 18: ``price / 10 ** price_scale``.
        size_scale: Decimals of sizes.
        venue_id: Id of the venue, 1 to 65,535.
        market_id: Id of the market, 1 to 2**32 - 1.
        rules: The exchange rules of an order book: "szse", "sse", "continuous" or None.
        book_mode: "l2" for price levels, "l3" for single orders.
        tick: The tick size, in units of `price_scale`; None if unknown.

    Example:
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=5)
        >>> btc.venue_id, btc.market_id
        (27909, 3580440794)
    """

    venue: str
    symbol: str
    price_scale: int
    size_scale: int
    venue_id: int
    market_id: int
    rules: RulesName | None = None
    book_mode: BookModeName = "l2"
    tick: int | None = None

    def __post_init__(self) -> None:
        for name in ("venue", "symbol"):
            _check_name(name, getattr(self, name))
        if ":" in self.venue:
            raise InvalidMessage(
                f"the name of a venue must not contain a colon: venue={self.venue!r}"
            )
        for name, least, most in _RANGES:
            _check_whole(name, getattr(self, name), least, most)
        if self.rules is not None and self.rules not in _RULES:
            raise InvalidMessage(f"rules must be szse, sse or None: rules={self.rules!r}")
        if self.book_mode not in _BOOK_MODES:
            raise InvalidMessage(f"book_mode must be l2 or l3: book_mode={self.book_mode!r}")
        if self.tick is not None:
            _check_whole("tick", self.tick, 1, 2**63 - 1)

    @classmethod
    def of(
        cls,
        venue: str,
        symbol: str,
        price_scale: int = 8,
        size_scale: int = 8,
        *,
        rules: RulesName | None = None,
        book_mode: BookModeName = "l2",
        tick: int | None = None,
    ) -> Self:
        """Make an instrument with ids from its names: the low 16 and 32 bits of XXH64, 1 for 0.

        Raises:
            InvalidMessage: A name is empty, longer than 64 bytes or not printable, or a value is
                out of range.
        """
        _check_name("venue", venue)
        _check_name("symbol", symbol)
        return cls(
            venue,
            symbol,
            price_scale,
            size_scale,
            xxh64(venue.encode()) & 0xFFFF or 1,
            symbol_hash(venue, symbol) & 0xFFFF_FFFF or 1,
            rules,
            book_mode,
            tick,
        )

    @property
    def symbol_hash(self) -> int:
        """XXH64 of ``venue:symbol``, a field of `Quote` and `TradeTick`."""
        return symbol_hash(self.venue, self.symbol)

    def __str__(self) -> str:
        return f"{self.venue}:{self.symbol}"


def _check_name(name: str, value: Any) -> None:
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or value != value.strip()
        or not 1 <= len(value.encode()) <= MAX_NAME_BYTES
    ):
        raise InvalidMessage(
            f"{name} must be printable text of 1 to {MAX_NAME_BYTES} bytes without leading or "
            f"trailing space: {name}={value!r}"
        )


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidMessage(f"{name} must be from {least} to {most}: {name}={value!r}")


class Instruments:
    """A set of instruments, indexed by name and by id; both are unique.

    Example:
        >>> known = Instruments()
        >>> btc = known.add(Instrument.of("binance", "BTCUSDT", 2, 5))
        >>> known.find("BTCUSDT") is btc, known.by_market(btc.market_id) is btc
        (True, True)
        >>> known.save(tmp)
        >>> Instruments.load(tmp)
        <Instruments binance:BTCUSDT>
    """

    def __init__(self, instruments: Iterable[Instrument] = ()) -> None:
        self._by_name: dict[tuple[str, str], Instrument] = {}
        self._by_market: dict[int, Instrument] = {}
        self._venues: dict[str, int] = {}
        self._venue_ids: dict[int, str] = {}
        self.path: str | None = None  # the file they were loaded from
        for instrument in instruments:
            self._put(instrument)

    def _put(self, instrument: Instrument) -> None:
        """Add an instrument with its ids; raise `LayoutConflict` if another one has them."""
        venue, name = instrument.venue, (instrument.venue, instrument.symbol)
        before = self._by_name.get(name)
        other = self._by_market.get(instrument.market_id)
        if other is not None and other is not before:
            raise _conflict("market_id", instrument.market_id, instrument, other)
        if before is not None and before.market_id != instrument.market_id:
            raise _conflict("market_id", instrument.market_id, instrument, before)
        if self._venues.get(venue, instrument.venue_id) != instrument.venue_id:
            raise _conflict("venue_id", instrument.venue_id, instrument, self._first_of(venue))
        owner = self._venue_ids.get(instrument.venue_id, venue)
        if owner != venue:
            raise _conflict("venue_id", instrument.venue_id, instrument, self._first_of(owner))
        self._by_name[name] = instrument
        self._by_market[instrument.market_id] = instrument
        self._venues[venue] = instrument.venue_id
        self._venue_ids[instrument.venue_id] = venue

    def _first_of(self, venue: str) -> Instrument:
        return next(one for one in self if one.venue == venue)

    def add(self, instrument: Instrument) -> Instrument:
        """Add or update an instrument; return it as stored.

        A known instrument keeps its ids and takes all other attributes of the new one. An id that
        another instrument has is replaced by the next free one.
        """
        known = self._by_name.get((instrument.venue, instrument.symbol))
        if known is not None:
            venue_id, market_id = known.venue_id, known.market_id
        else:
            venue_id = self._venues.get(instrument.venue) or _free(
                instrument.venue_id, self._venue_ids, 0xFFFF
            )
            market_id = _free(instrument.market_id, self._by_market, 0xFFFF_FFFF)
        if (venue_id, market_id) != (instrument.venue_id, instrument.market_id):
            instrument = replace(instrument, venue_id=venue_id, market_id=market_id)
        self._put(instrument)
        return instrument

    def get(self, venue: str, symbol: str) -> Instrument | None:
        """Return the instrument with this name, or None."""
        return self._by_name.get((venue, symbol))

    def by_id(self, venue_id: int, market_id: int) -> Instrument | None:
        """Return the instrument of a book event, or None."""
        found = self._by_market.get(market_id)
        return found if found is not None and found.venue_id == venue_id else None

    def by_market(self, market_id: int) -> Instrument | None:
        """Return the instrument of a quote or trade, or None."""
        return self._by_market.get(market_id)

    def find(self, symbol: str) -> Instrument:
        """Return the instrument with this symbol, or ``venue:symbol``.

        Raises:
            UnknownInstrument: No venue has the symbol, or several have it.
        """
        found = [one for one in self if one.symbol == symbol] or [
            one for one in self if str(one) == symbol
        ]
        if len(found) == 1:
            return found[0]
        where = self.path
        if found:
            names = ", ".join(map(str, found))
            raise UnknownInstrument(
                f"several venues have this symbol: symbol={symbol!r}, known={names}",
                path=where,
                hint="write venue:symbol",
            )
        some = ", ".join(str(one) for one, _ in zip(self, range(8), strict=False)) or "none"
        more = f" and {len(self) - 8} more" if len(self) > 8 else ""
        raise UnknownInstrument(
            f"no instrument has this symbol: symbol={symbol!r}, known={some}{more}", path=where
        )

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, instrument: object) -> bool:
        return (
            isinstance(instrument, Instrument)
            and self._by_name.get((instrument.venue, instrument.symbol)) == instrument
        )

    def __repr__(self) -> str:
        names = "".join(f" {one}" for one, _ in zip(self, range(4), strict=False))
        more = f" and {len(self) - 4} more" if len(self) > 4 else ""
        return f"<Instruments{names or ' (none)'}{more}>"

    @classmethod
    def load(cls, where: str | os.PathLike[str]) -> Self:
        """Load the nearest `instruments.json` in a log's directory or above it; empty if none.

        A file is ignored unless its owner is the current user, root or the owner of the log: other
        users may have left one in /tmp.

        Raises:
            CorruptMetadata: The file is damaged; the message names the place.
            UnsupportedVersion: A later release wrote it.
        """
        path = nearest_file(where)
        return cls() if path is None else cls._read(path)

    @classmethod
    def _read(cls, path: str) -> Self:
        made = cls()
        texts: dict[str, str] = {}
        with open_plain(path, MAX_FILE_BYTES) as file, named_errors(path, _REMEDY):
            entries = stream_entries(file, FORMAT, FORMAT_VERSION, "instruments", MAX_INSTRUMENTS)
            for i, entry in enumerate(entries):
                made._put_entry(entry, f"instruments[{i}]", texts)
        made.path = path
        return made

    def _put_entry(self, entry: Any, where: str, texts: dict[str, str]) -> None:
        """Add an entry of a file; raise `InvalidField` if it is invalid. `texts` interns texts."""
        if not isinstance(entry, dict) or entry.keys() != _KINDS.keys():
            members(entry, where, **_KINDS)
        for name in ("venue", "rules", "book_mode"):  # the same few texts in thousands of entries
            text = entry[name]
            if type(text) is str:
                entry[name] = texts.setdefault(text, text)
        try:
            instrument = Instrument(**entry)
            if (instrument.venue, instrument.symbol) in self._by_name:
                raise InvalidField(f"{where}: duplicate instrument: {instrument}")
            self._put(instrument)
        except TapewireError as error:
            members(entry, where, **_KINDS)  # for a value of another type, raises a clearer error
            raise InvalidField(f"{where}: {error.message}") from None

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Merge the instruments into the `instruments.json` of a directory.

        An instrument in the file must have the same ids; its other attributes are replaced.

        Raises:
            LayoutConflict: Ids conflict with those in the file; nothing is written.
            CorruptMetadata: The existing file is damaged.
            ConcurrentUse: Another process or thread has been writing the file for 10 seconds.
        """
        path = os.path.join(os.fspath(directory), FILE_NAME)
        with locked_directory(os.fspath(directory), FILE_NAME) as directory_fd:
            try:
                merged = type(self)._read(path)
            except FileNotFoundError:
                merged = type(self)()
            before = list(merged)
            try:
                for instrument in self:
                    merged._put(instrument)
            except LayoutConflict as error:
                error.path = path
                raise
            if list(merged) != before:
                text = render(merged)
                if len(merged) > MAX_INSTRUMENTS or len(text) > MAX_FILE_BYTES:
                    raise InvalidMessage(
                        f"too many instruments for a file: instruments={len(merged)}, "
                        f"max={MAX_INSTRUMENTS}, bytes={len(text)}, max={MAX_FILE_BYTES}",
                        path=path,
                    )
                store(path, text, directory_fd)
        self.path = path


def nearest_file(where: str | os.PathLike[str]) -> str | None:
    """Return the `instruments.json` that `Instruments.load` reads for a log, or None."""
    directory = os.path.realpath(os.fspath(where))
    for _ in range(MAX_LEVELS_UP):
        path = os.path.join(directory, FILE_NAME)
        if _has_trusted_owner(path, where):
            return path
        if os.path.dirname(directory) == directory:
            break
        directory = os.path.dirname(directory)
    return None


def _has_trusted_owner(path: str, log: str | os.PathLike[str]) -> bool:
    """Whether the file exists and belongs to the current user, root or the owner of the log."""
    try:
        owner = os.lstat(path).st_uid
    except (FileNotFoundError, NotADirectoryError):
        return False
    return owner in (os.geteuid(), 0) or (os.path.exists(log) and owner == os.stat(log).st_uid)


def _free(wanted: int, taken: dict[int, Any], most: int) -> int:
    for _ in range(most):
        if wanted not in taken:
            return wanted
        wanted = wanted % most + 1
    raise InvalidMessage(f"no id is free: ids={most}")


def _conflict(what: str, value: int, one: Instrument, other: Instrument) -> LayoutConflict:
    return LayoutConflict(
        f"conflicting ids: {what}={value} of {one}, but {other} has "
        f"venue_id={other.venue_id}, market_id={other.market_id}",
        hint="add() the new one to the result of Instruments.load(), which assigns free ids",
    )


def render(instruments: Iterable[Instrument]) -> bytes:
    """Return the file for these instruments: JSON, one line for each, sorted by name."""
    lines = [
        json.dumps({name: getattr(one, name) for name in _KINDS}, ensure_ascii=False)
        for one in sorted(instruments, key=lambda one: (one.venue, one.symbol))
    ]
    head = json.dumps({"format": FORMAT, "version": FORMAT_VERSION})
    between = ",\n "
    return f'{head[:-1]}, "instruments": [\n {between.join(lines)}\n]}}\n'.encode()


_REMEDY = "restore the file; Instrument.of makes the ids again from the names"
_KINDS: dict[str, Any] = {
    "venue": str,
    "symbol": str,
    "price_scale": int,
    "size_scale": int,
    "venue_id": int,
    "market_id": int,
    "rules": str | None,
    "book_mode": str,
    "tick": int | None,
}
