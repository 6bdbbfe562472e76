"""Orders and trades of an exchange that numbers them together in channels, as rows of one array.

Common code of the Shanghai and Shenzhen importers: the array, the exchange's clock and its phases,
and the chunks.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tapewire.errors import InvalidOption
from tapewire.ingest.file_options import FileOptions
from tapewire.ingest.importer import Chunk
from tapewire.ingest.losses import Lost
from tapewire.ingest.symbols import directory_name, known_instrument
from tapewire.ingest.tables import MISSING, RowOwner, TableBlock

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = [
    "EVENT_DTYPE",
    "SEQ_BITS",
    "ChannelChunks",
    "ChannelGap",
    "DatedOptions",
    "Symbols",
    "channel_of",
    "day_of",
    "empty_events",
    "keys",
    "number_of",
    "phase_flags",
    "times",
    "with_keys",
    "without_negatives",
]

_Array = np.ndarray[Any, Any]

# A key is day, channel and number, from the top bits down: numbers restart each day.
SEQ_BITS = 33
CHANNEL_BITS = 15
MAX_DAY = (1 << 15) - 1  # in 2059
MAX_CHANNEL = (1 << CHANNEL_BITS) - 1
MAX_NUMBER = (1 << SEQ_BITS) - 1
SECOND_NS = 10**9
_AFTER_ALL = 1 << 62  # a line after those of all events
DAY_NS = 86_400 * SECOND_NS
SHANGHAI_NS = 8 * 3600 * SECOND_NS  # UTC+8 all year, since 1991

EVENT_DTYPE = np.dtype(
    [
        ("key", "<i8"),  # day, channel and number: the order of events
        ("symbol", "<i8"),  # index in Symbols.names
        ("exchange_ns", "<i8"),
        ("ingest_ns", "<i8"),
        ("order_id", "<u8"),
        ("bid_order_id", "<u8"),
        ("ask_order_id", "<u8"),
        ("price", "<i8"),
        ("qty", "<i8"),
        ("amt", "<i8"),
        ("line", "<i8"),
        ("source", "<u4"),  # index of the file
        ("flags", "<u4"),
        ("type", "u1"),
        ("side", "u1"),  # the aggressor's, if it is a trade
        ("ord_type", "u1"),
        ("exec_type", "u1"),
    ]
)

ADD, CANCEL, TRADE, RESET = 1, 2, 4, 5  # L3Type
PRICE_IS_MARKET, OPENING, CLOSING, RESTRICTED = 1, 2, 4, 8  # L3Flags


def _clock(hours: int, minutes: int) -> int:
    return (hours * 60 + minutes) * 60 * SECOND_NS


# Both exchanges. An auction's trades are published when it ends: its phase lasts until the next.
OPENING_CALL = (_clock(9, 15), _clock(9, 30))
CLOSING_CALL = (_clock(14, 57), _clock(15, 5))
NO_CANCEL = ((_clock(9, 20), _clock(9, 25)), (_clock(14, 57), _clock(15, 0)))


@dataclass(frozen=True, kw_only=True)
class DatedOptions(FileOptions):
    """Options of files that contain the time of day but not the day.

    Attributes:
        date: The trading day, ``YYYY-MM-DD``; without it, the ``YYYYMMDD`` in the file's name.
        clock: "receive": the time at which the file's writer received an event, if the file has it;
            "exchange": the exchange's time.
        check_gaps: Whether a number that is missing in a channel is a gap. Without it, that is so
            for channels of which nearly all numbers are there: in a file of single stocks, numbers
            are missing everywhere.
    """

    date: str | None = None
    clock: str = "receive"
    check_gaps: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.date is not None:
            _parse_day(self.date)
        if self.clock not in ("receive", "exchange"):
            raise InvalidOption(
                f'clock must be "receive" or "exchange": clock={self.clock!r}',
            )


def _parse_day(text: str) -> int:
    try:
        day = dt.date.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidOption(f"not a day: date={text!r}", hint="give YYYY-MM-DD") from None
    if day.year < 1971:
        raise InvalidOption(f"times start at 1970: date={text!r}")
    return (day - dt.date(1970, 1, 1)).days


def day_of(options: DatedOptions, source: SourceFile) -> int:
    """The trading day of a file in days since 1970-01-01.

    Raises:
        InvalidOption: Neither the options nor the file's name contain it.
    """
    if options.date is not None:
        return _parse_day(options.date)
    for found in re.findall(r"(?<!\d)(\d{8})(?!\d)", source.name):
        try:
            return _parse_day(f"{found[:4]}-{found[4:6]}-{found[6:]}")
        except InvalidOption:
            continue
    raise InvalidOption(
        f"the file name does not contain the day: file={source.name!r}",
        hint="give date=YYYY-MM-DD; on the command line, --option date=YYYY-MM-DD",
    )


def phase_flags(types: _Array, clock_ns: _Array) -> _Array:
    """L3 flags of the exchange's phase at a time of its day."""

    def within(window: tuple[int, int]) -> _Array:
        inside: _Array = (clock_ns >= window[0]) & (clock_ns < window[1])
        return inside

    flags = np.zeros(len(clock_ns), np.uint32)
    flags[within(OPENING_CALL)] |= OPENING
    flags[within(CLOSING_CALL)] |= CLOSING
    flags[(types == CANCEL) & (within(NO_CANCEL[0]) | within(NO_CANCEL[1]))] |= RESTRICTED
    return flags


def empty_events(n: int) -> _Array:
    """`n` zeroed rows."""
    return np.zeros(n, EVENT_DTYPE)


def without_negatives(
    block: TableBlock, names: tuple[str, ...], report: Report | None
) -> TableBlock:
    """The rows without negative values in these columns."""
    for name in names:
        block = block.without(block[name] < 0, report, f"{name} below zero")
    return block


def with_keys(
    block: TableBlock, days: _Array | int, channel: str, number: str, report: Report | None
) -> TableBlock:
    """The rows whose day, channel and number fit a key."""
    channels, numbers = block[channel], block[number]
    invalid = (channels < 0) | (channels > MAX_CHANNEL) | (numbers < 0) | (numbers > MAX_NUMBER)
    invalid |= np.asarray(days) > MAX_DAY
    return block.without(invalid, report, "invalid channel or number")


def keys(days: _Array | int, channels: _Array, numbers: _Array) -> _Array:
    """Keys, by which events are ordered: day, channel, and number in the channel."""
    return np.asarray(days << CHANNEL_BITS | channels) << SEQ_BITS | numbers


def channel_of(key: Any) -> Any:
    """The channel of keys."""
    return key >> SEQ_BITS & MAX_CHANNEL


def number_of(key: Any) -> Any:
    """The number of keys in their channel."""
    return key & MAX_NUMBER


class Symbols:
    """Maps names of stocks to small integers, the same for all files of an import."""

    def __init__(self, suffix: str = "") -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._suffix = suffix.encode()

    def owner(self, column: str) -> RowOwner:
        """Finds the stock of a row that is rejected."""
        return RowOwner(column, lambda text: directory_name(text.removesuffix(self._suffix)))

    def number(self, text: bytes) -> int:
        """The number of a name, or -1 if it is not a valid name."""
        name = directory_name(text.removesuffix(self._suffix))
        if name is None:
            return -1
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def column(self, block: TableBlock, name: str) -> _Array:
        """The numbers of a column of text."""
        codes = block[name]
        of_text = {code: self.number(block.texts[code]) for code in np.unique(codes).tolist()}
        if len(of_text) == 1:
            return np.full(len(codes), next(iter(of_text.values())), np.int64)
        table = np.array([of_text.get(code, -1) for code in range(max(of_text, default=-1) + 1)])
        return table[codes] if len(codes) else codes


def times(events: _Array, days: _Array | int, clock_ns: _Array, received_ns: _Array | None) -> None:
    """Fill both times from `clock_ns` since midnight and `received_ns` since 1970, in Shanghai."""
    events["exchange_ns"] = days * DAY_NS + clock_ns - SHANGHAI_NS
    events["ingest_ns"] = events["exchange_ns"]
    if received_ns is not None:
        known = received_ns != MISSING
        events["ingest_ns"][known] = received_ns[known] - SHANGHAI_NS


class ChannelGap(NamedTuple):
    """What is missing or invalid in a channel before its first event from `key` on."""

    key: int
    cause: str
    first: int = 0
    last: int = 0


class ChannelChunks:
    """Makes chunks of "book" and "trades", stock by stock, from events in order."""

    def __init__(
        self,
        venue: Literal["sse", "szse"],
        options: DatedOptions,
        symbols: Symbols,
        report: Report,
    ) -> None:
        self.venue: Literal["sse", "szse"] = venue
        self.options = options
        self._symbols = symbols
        self.report = report
        self._instruments: dict[int, Instrument | None] = {}
        self._latest_ns: dict[int, int] = {}
        self._days: dict[int, int] = {}  # symbol → day of its latest event
        self._begun: dict[str, int] = {}
        self._held: dict[int, _Array] = {}  # the latest events of each stock
        self._at: dict[int, _At] = {}
        # Set by ChannelCheck: whether the channel of an event is there from its first number on,
        # None if that is unknown, and the gaps of a day and channel.
        self.from_first: Callable[[Any], bool | None] = lambda row: None
        self.gaps_of: Callable[[int], Sequence[ChannelGap]] = lambda channel: ()

    def chunks(self, events: _Array) -> Iterator[Chunk]:
        """The chunks of events, delayed by one call: the next events show where losses are."""
        for symbol in np.unique(events["symbol"]).tolist():
            self.instrument(symbol)  # all before the first log: instruments.json is written once
        by_symbol = events[np.argsort(events["symbol"], kind="stable")]
        starts = np.flatnonzero(np.diff(by_symbol["symbol"], prepend=-1))
        parts = (rows for rows in np.split(by_symbol, starts[1:]) if len(rows))
        yield from self._release({int(rows["symbol"][0]): rows for rows in parts})

    def finish(self) -> Iterator[Chunk]:
        """The chunks of the last events."""
        yield from self._release({})
        for symbol, at in self._at.items():
            self._end_channel(self._symbols.names[symbol], at, _AFTER_ALL, at.source)

    def _release(self, following: dict[int, _Array]) -> Iterator[Chunk]:
        held, self._held = self._held, following
        for symbol, rows in held.items():
            yield from self._of_symbol(symbol, rows, _first_lines(following.get(symbol)))

    def instrument(self, symbol: int) -> Instrument | None:
        """The instrument of a stock, or None if it is not imported."""
        from tapewire.protocol.instruments import Instrument

        if symbol not in self._instruments:
            options, name = self.options, self._symbols.names[symbol]
            known = None
            if not options.symbols or name in options.symbols:
                made = Instrument.of(
                    self.venue,
                    name,
                    options.price_scale,
                    options.size_scale,
                    rules=self.venue,
                    book_mode="l3",
                )
                known = known_instrument(self.report, made, options)
            self._instruments[symbol] = known
        return self._instruments[symbol]

    def _of_symbol(self, symbol: int, rows: _Array, next_lines: dict[int, int]) -> Iterator[Chunk]:
        instrument = self.instrument(symbol)
        if instrument is None:
            self.report.skipped["another symbol"] += len(rows)
            return
        rows = self._with_resets(symbol, rows)
        self._check_start(instrument.symbol, rows)
        self._check_gaps(symbol, instrument.symbol, rows)
        # An event cannot be used before the events before it.
        times_ns = np.maximum.accumulate(rows["ingest_ns"])
        np.maximum(times_ns, self._latest_ns.get(symbol, 0), out=times_ns)
        self._latest_ns[symbol] = int(times_ns[-1])
        yield _book_chunk(instrument, rows, times_ns, next_lines)
        traded = rows["type"] == TRADE
        if traded.any():
            yield _trades_chunk(instrument, rows[traded], times_ns[traded])

    def _check_start(self, symbol: str, rows: _Array) -> None:
        """Report days that begin after the opening call: orders that rest already are unknown."""
        days = rows["key"] >> SEQ_BITS + CHANNEL_BITS
        starts = np.flatnonzero(np.diff(days, prepend=self._begun.get(symbol, -1)))
        self._begun[symbol] = int(days[-1])
        for start in starts.tolist():
            row = rows[start + int(rows["type"][start] == RESET)]
            from_first = self.from_first(row)
            if not (row["flags"] & OPENING if from_first is None else from_first):
                entry = Lost(int(row["line"]), symbol, "no_snapshot")
                self.report.lost_at(int(row["source"]), entry)

    def _check_gaps(self, symbol: int, name: str, rows: _Array) -> None:
        """Report the gaps of the channel: what is missing may be events of any of its stocks."""
        channels = rows["key"] >> SEQ_BITS
        for part in np.split(rows, np.flatnonzero(np.diff(channels)) + 1):
            channel = int(part["key"][0]) >> SEQ_BITS
            at = self._at.get(symbol)
            if at is None or at.channel != channel:
                if at is not None:
                    self._change_channel(name, at, channel, part[0])
                at = self._at[symbol] = _At(channel)
            at.source = int(part["source"][-1])
            gaps = self.gaps_of(channel)[at.gaps_seen :]
            ahead = np.searchsorted(part["key"], [gap.key for gap in gaps]).tolist()
            for i, gap in zip(ahead, gaps, strict=True):
                if i == len(part):
                    break
                at.gaps_seen += 1
                self._report_gap(name, gap, int(part["line"][i]), int(part["source"][i]))

    def _change_channel(self, name: str, at: _At, channel: int, row: _Array) -> None:
        """Report what is wrong if the next event of a stock is of another day or channel."""
        line, source = int(row["line"]), int(row["source"])
        self._end_channel(name, at, line, source)
        if at.channel >> CHANNEL_BITS == channel >> CHANNEL_BITS:
            # A stock has one channel a day; the order of events of two is unknown.
            self.report.lost_at(source, Lost(line, name, "out_of_order"))

    def _end_channel(self, name: str, at: _At, line: int, source: int) -> None:
        """Report a gap after the stock's last event of a day: it may have had more of them."""
        for gap in self.gaps_of(at.channel)[at.gaps_seen :][-1:]:
            self._report_gap(name, gap, line, source)

    def _report_gap(self, name: str, gap: ChannelGap, line: int, source: int) -> None:
        self.report.lost_at(source, Lost(line, name, gap.cause, gap.first, gap.last))

    def _with_resets(self, symbol: int, rows: _Array) -> _Array:
        """Begin each further day with a reset: orders end with their day."""
        days = rows["key"] >> SEQ_BITS + CHANNEL_BITS
        starts = np.flatnonzero(np.diff(days, prepend=self._days.get(symbol, days[0])))
        self._days[symbol] = int(days[-1])
        resets = empty_events(len(starts))
        for name in ("symbol", "exchange_ns", "ingest_ns", "line", "source"):
            resets[name] = rows[name][starts]
        resets["line"] -= 1  # the reset is before whatever is missing before the first row
        resets["key"] = rows["key"][starts] - number_of(rows["key"][starts])
        resets["type"] = RESET
        return np.insert(rows, starts, resets)


@dataclass
class _At:
    """How far a stock is: its day and channel, how many gaps of it are reported, its last file."""

    channel: int
    gaps_seen: int = 0
    source: int = 0


def _first_lines(rows: _Array | None) -> dict[int, int]:
    """The line of the first event from each file."""
    if rows is None:
        return {}
    sources, first = np.unique(rows["source"], return_index=True)
    return dict(zip(sources.tolist(), rows["line"][first].tolist(), strict=True))


def _book_chunk(
    instrument: Instrument, rows: _Array, times_ns: _Array, next_lines: dict[int, int]
) -> Chunk:
    from tapewire.protocol.market import BOOK_EVENT, EventType, L3Flags, l3_rows

    records = l3_rows(instrument, len(rows))
    head, order = records["head"], records["order"]
    head["ingest_ts_ns"] = times_ns
    head["exchange_ts_ns"] = rows["exchange_ns"]
    head["native_seq"] = number_of(rows["key"])
    head["stream_id"] = channel_of(rows["key"])
    order["event_type"] = rows["type"]
    head["event_type"][rows["type"] == RESET] = EventType.RESET
    for name in ("side", "ord_type", "exec_type", "order_id", "price", "qty", "amt"):
        order[name] = rows[name]
    flags = rows["flags"]
    for name, flag in (("bid_order_id", L3Flags.HAS_BID), ("ask_order_id", L3Flags.HAS_ASK)):
        order[name] = rows[name]
        flags = flags | np.where(rows[name] != 0, int(flag), 0).astype(np.uint32)
    order["flags"] = flags
    return Chunk(
        instrument.venue,
        instrument.symbol,
        "book",
        BOOK_EVENT,
        times_ns,
        records,
        rows["line"],
        rows["source"],
        next_lines=next_lines,
    )


def _trades_chunk(instrument: Instrument, rows: _Array, times_ns: _Array) -> Chunk:
    from tapewire.protocol.market import TradeTick

    ticks = np.zeros(len(rows), TradeTick.dtype)
    ticks["timestamp_ns"] = rows["exchange_ns"]
    ticks["price"] = rows["price"]
    ticks["size"] = rows["qty"]
    ticks["trade_id"] = number_of(rows["key"])
    ticks["buyer_order_id"] = rows["bid_order_id"]
    ticks["seller_order_id"] = rows["ask_order_id"]
    ticks["symbol_hash"] = instrument.symbol_hash
    ticks["market_id"] = instrument.market_id
    ticks["price_scale"] = instrument.price_scale
    ticks["size_scale"] = instrument.size_scale
    # If the aggressor sold, the buyer's order rested. An auction has no aggressor.
    ticks["is_buyer_maker"] = np.choose(rows["side"], [2, 0, 1])
    return Chunk(
        instrument.venue,
        instrument.symbol,
        "trades",
        TradeTick.type_id,
        times_ns,
        ticks,
        rows["line"],
        rows["source"],
    )
