"""Which instrument the ids of a market data message mean: `instruments.json` above the logs.

Messages name an instrument by two numbers. They are hashes of its names, the same on every host, so
that tapes of several hosts can be read together; the file turns them back into names and says how a
book of it is kept.
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
    Wrong,
    locked_folder,
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
MAX_FILE_BYTES = 64 << 20  # more than MAX_INSTRUMENTS with names of usual length take
MAX_INSTRUMENTS = 200_000
MAX_NAME_BYTES = 64
# From a log in an archive up to the archive's root: v1/<venue>/<symbol>/<date>/<stream>, and some.
MAX_LEVELS_UP = 8

RulesName = Literal["szse", "sse"]
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
    """No instrument has this name, or several have it."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One market of one venue, and the numbers and scales its messages have.

    Attributes:
        venue: Name of the venue, without a colon.
        symbol: Its name there, as the venue writes it.
        price_scale: Decimals of prices, 0 to 18: ``price / 10 ** price_scale``.
        size_scale: Decimals of sizes.
        venue_id: Number of the venue, 1 to 65,535.
        market_id: Number of this market, 1 to 2**32 - 1.
        rules: Which exchange's rules a book of orders follows: "szse", "sse" or None.
        book_mode: "l2" for price levels, "l3" for single orders.
        tick: The smallest step of a price, in units of `price_scale`; None where it is not known.

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
            raise InvalidMessage(f"a venue's name must have no colon: venue={self.venue!r}")
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
        """An instrument with the ids of its names: the low 16 and 32 bits of their XXH64, or 1.

        Raises:
            InvalidMessage: A name is empty, longer than 64 bytes or not printable, or a value does
                not fit.
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
        """XXH64 of ``venue:symbol``, which `Quote` and `TradeTick` carry."""
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
            f"{name} must be printable text of 1 to {MAX_NAME_BYTES} bytes, without space around: "
            f"{name}={value!r}"
        )


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidMessage(f"{name} must be from {least} to {most}: {name}={value!r}")


class Instruments:
    """Instruments by name and by their ids, each of which is there once.

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
        """Take an instrument with the ids it has; `LayoutConflict` when they are another's."""
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
        """Take an instrument in; returned is what is known from now on.

        One that is known keeps its ids and gets the rest of the new one. An id that another one has
        becomes the next that is free.
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
        """The instrument of this name, or None."""
        return self._by_name.get((venue, symbol))

    def by_id(self, venue_id: int, market_id: int) -> Instrument | None:
        """The instrument that a book event names, or None."""
        found = self._by_market.get(market_id)
        return found if found is not None and found.venue_id == venue_id else None

    def by_market(self, market_id: int) -> Instrument | None:
        """The instrument that a quote or trade names, or None."""
        return self._by_market.get(market_id)

    def find(self, symbol: str) -> Instrument:
        """The one instrument of this symbol, or of ``venue:symbol``.

        Raises:
            UnknownInstrument: There is none, or several venues have it.
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
                hint="name it with its venue",
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
        """From the nearest `instruments.json` in a log's folder or above it; empty without one.

        A file of another user is passed over, unless it is root's or of the log's owner: somebody
        may have left one in /tmp.

        Raises:
            CorruptMetadata: The file is not what Tapewire writes; the message names the place.
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
        """Take an entry of a file; `Wrong` when it breaks a rule. `texts` has those seen before."""
        if not isinstance(entry, dict) or entry.keys() != _KINDS.keys():
            members(entry, where, **_KINDS)
        for name in ("venue", "rules", "book_mode"):  # a few texts, which thousands share
            text = entry[name]
            if type(text) is str:
                entry[name] = texts.setdefault(text, text)
        try:
            instrument = Instrument(**entry)
            if (instrument.venue, instrument.symbol) in self._by_name:
                raise Wrong(f"{where}: there twice: {instrument}")
            self._put(instrument)
        except TapewireError as error:
            members(entry, where, **_KINDS)  # of a value of another type it names the type
            raise Wrong(f"{where}: {error.message}") from None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Put them into a folder's `instruments.json`, beside those that are there.

        Of an instrument that is there already the ids must be the same; the rest becomes ours.

        Raises:
            LayoutConflict: Ids do not go together with what is there; nothing is written.
            CorruptMetadata: What is there is damaged.
            ConcurrentUse: Somebody else has been writing it for long.
        """
        path = os.path.join(os.fspath(folder), FILE_NAME)
        with locked_folder(os.fspath(folder), FILE_NAME) as folder_fd:
            try:
                there = type(self)._read(path)
            except FileNotFoundError:
                there = type(self)()
            before = list(there)
            try:
                for instrument in self:
                    there._put(instrument)
            except LayoutConflict as error:
                error.path = path
                raise
            if list(there) != before:
                text = render(there)
                if len(there) > MAX_INSTRUMENTS or len(text) > MAX_FILE_BYTES:
                    raise InvalidMessage(
                        f"too many instruments for a file: instruments={len(there)}, "
                        f"max={MAX_INSTRUMENTS}, bytes={len(text)}, max={MAX_FILE_BYTES}",
                        path=path,
                    )
                store(path, text, folder_fd)
        self.path = path


def nearest_file(where: str | os.PathLike[str]) -> str | None:
    """The `instruments.json` that `Instruments.load` takes for a log; None: there is none."""
    folder = os.path.realpath(os.fspath(where))
    for _ in range(MAX_LEVELS_UP):
        path = os.path.join(folder, FILE_NAME)
        if _is_ours(path, where):
            return path
        if os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
    return None


def _is_ours(path: str, log: str | os.PathLike[str]) -> bool:
    """Whether the file is there and of somebody that we, or the log, belong to."""
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
    raise InvalidMessage(f"all ids are taken: ids={most}")


def _conflict(what: str, value: int, one: Instrument, other: Instrument) -> LayoutConflict:
    return LayoutConflict(
        f"two instruments do not go together: {what}={value} of {one}, and {other} has "
        f"venue_id={other.venue_id}, market_id={other.market_id}",
        hint="add() the new one to what Instruments.load() gives: it takes ids that are free",
    )


def render(instruments: Iterable[Instrument]) -> bytes:
    """The file for these instruments: JSON, a line for each, in the order of their names."""
    lines = [
        json.dumps({name: getattr(one, name) for name in _KINDS}, ensure_ascii=False)
        for one in sorted(instruments, key=lambda one: (one.venue, one.symbol))
    ]
    head = json.dumps({"format": FORMAT, "version": FORMAT_VERSION})
    between = ",\n "
    return f'{head[:-1]}, "instruments": [\n {between.join(lines)}\n]}}\n'.encode()


_REMEDY = "restore the file; the ids can be made anew from the names with Instrument.of"
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
