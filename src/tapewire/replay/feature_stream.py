"""Features of books and trades: rows of numbers out of a tape, natively, in bounded memory.

A row is a function of the book at its time and of a finite look-back before it, computed in
integers and rounded once. So a slice ``[time_from, time_to)`` of any size gives the same bits as
one pass over the whole tape, and the state of a stream can be kept and taken up again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from tapewire.errors import InvalidOption
from tapewire.replay import _features
from tapewire.replay._features import FeatureInfo, Row, describe_features
from tapewire.replay.playback import Replay, check_numbers
from tapewire.replay.sources import Sources
from tapewire.replay.start import begins_late, next_record, stand_behind, time_range

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.clock import TimeLike
    from tapewire.protocol.instruments import Instrument, Instruments
    from tapewire.replay.sources import Log, Logs

    Function: TypeAlias = Callable[[Row], float | None]
    Name: TypeAlias = "str | PythonFeature | Mapping[str, Function | PythonFeature]"
    Names: TypeAlias = "Name | Iterable[Name]"

__all__ = [
    "BATCH_ROWS",
    "FeatureInfo",
    "FeatureStream",
    "PythonFeature",
    "Row",
    "asof",
    "describe_features",
    "feature",
    "feature_batches",
    "features",
]

BATCH_ROWS = 65_536
_NEVER = -(2**63)


@dataclass(frozen=True)
class PythonFeature:
    """A function as a feature; `feature` makes one.

    Attributes:
        name: Of its column.
        function: Called with a `Row` for each row; None is null.
        look_back_ns: How far back the trades go that it sees.
    """

    name: str
    function: Function
    look_back_ns: int = 0

    def __call__(self, row: Row) -> float | None:
        """The value for a row."""
        return self.function(row)


def feature(
    *, lookback: str | None = None, name: str | None = None
) -> Callable[[Function], PythonFeature]:
    """Make a feature of a Python function.

    It is called once for each row, with a `Row`, and costs about as much as any call into Python:
    some microseconds, where a native feature takes nanoseconds. It may look at `row.book`, at
    native features of the same row (``row["mid"]``, when named beside it), and at `row.trades`.
    For slices to give the same bits it must keep nothing from one call to the next.

    Args:
        lookback: Span of `row.trades`, such as "5s"; None: no trades.
        name: Of the column; None takes the function's.

    Example:
        >>> from tapewire import replay
        >>> @replay.feature(lookback="5s")
        ... def trades_5s(row):
        ...     return float(len(row.trades))
        >>> trades_5s.name, trades_5s.look_back_ns
        ('trades_5s', 5000000000)
    """
    span = 0 if lookback is None else _features.parse_span(lookback)

    def made(function: Function) -> PythonFeature:
        own_name = str(getattr(function, "__name__", "function"))
        return PythonFeature(name or own_name, function, span)

    return made


def _split(names: Names) -> tuple[list[str], list[PythonFeature], list[str]]:
    """Native names, functions, and the columns in the order asked for."""
    if isinstance(names, str | Mapping | PythonFeature):
        names = [names]
    native: list[str] = []
    functions: list[PythonFeature] = []
    order: list[str] = []
    for one in names:
        if isinstance(one, str):
            native.append(one)
            order.append(one)
            continue
        items = one.items() if isinstance(one, Mapping) else [(None, one)]
        for name, function in items:
            if not callable(function):
                raise TypeError(f"a feature must be a name or a function: {function!r}")
            made = function if isinstance(function, PythonFeature) else feature()(function)
            functions.append(made if name is None else replace(made, name=name))
            order.append(functions[-1].name)
    twice = {name for name in order if order.count(name) > 1 or name in ("timestamp_ns", "symbol")}
    if twice or not order:
        what = f"a column is named twice: name={min(twice)!r}" if twice else "no feature is named"
        raise InvalidOption(what, hint="replay.describe_features() lists them")
    return native, functions, order


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("features are Arrow tables: pip install 'tapewire[arrow]'") from error
    return pyarrow


class FeatureStream:
    """Rows of features as record batches, as far as the tape goes now; more when more is there.

    Args:
        logs: As for `Replay`: a path, several, or a dict from name to log; books and trades may be
            in one or in many.
        names: Names of features, as `describe_features` lists them, functions made by `feature`,
            and dicts from a name to a function.
        sample: "event": a row after each book event and each trade, with what it left. "trade": a
            row at each trade, with what there was just before it. A span ("100ms"): a row at each
            whole multiple of it since the epoch, behind the first record of the tape up to the
            last, with what there was just before it.
        symbols: Instruments, as for `Replay`. With them, a grid has rows for each, null where
            nothing is known. None: whatever the logs hold, each from its first record on.
        time_from: The first time of rows; None: from the beginning.
        time_to: Rows are before this; None: to the end.
        seq_from: Of one log: rows that this record or a later one brings about; a row of a grid
            belongs to the record at which the tape reaches its time. None: from the beginning.
        seq_to: Of one log: rows of records below this number; None: to the end.
        instruments: Names and scales; None takes the nearest `instruments.json`.
        on_gap: As for `Replay`.
        snapshots: With `symbols` and `time_from` or `seq_from`, begin from the latest book
            snapshots.
        skip_damaged: As for `Replay`.
        state: What `save` gave: go on behind it. The other arguments are to be the same.

    Attributes:
        done: Whether the tape has reached `time_to` or `seq_to`.
    """

    def __init__(
        self,
        logs: Logs,
        names: Names,
        sample: str = "event",
        *,
        symbols: Iterable[str | Instrument] | str | None = None,
        time_from: TimeLike | None = None,
        time_to: TimeLike | None = None,
        seq_from: int | None = None,
        seq_to: int | None = None,
        instruments: Instruments | None = None,
        on_gap: str = "resync",
        snapshots: bool = True,
        skip_damaged: bool = False,
        state: bytes | None = None,
    ) -> None:
        self._pa = _arrow()
        native, self._functions, self._order = _split(names)
        looking = [f for f in self._functions if f.look_back_ns]
        self._kept = {f.name: i for i, f in enumerate(looking)}
        plan = _features.Plan(native, sample, [f.look_back_ns for f in looking])
        self.done = False
        if isinstance(logs, Iterator):  # looked at twice
            logs = list[Any](logs)
        from_ns, end_ns = time_range(time_from, time_to)
        # Which instruments there are is known from the beginning of the tape alone, unless they
        # are named.
        start_ns = first_ns = None
        with contextlib.ExitStack() as opened:
            if symbols is not None and state is None and (from_ns, seq_from) != (None, None):
                first_ns, seq_ns = _first_times(logs, seq_from, seq_to)
                begin = max((at for at in (from_ns, seq_ns) if at is not None), default=None)
                if begin is not None:
                    start_ns = max(begin - plan.look_back_ns, _NEVER + 1)
            self._before: dict[str, int | None] = {}
            lost: dict[int, tuple[int, int]] = {}
            if state is not None:
                logs, self._before, lost = _reopened(logs, state, opened)
            self._replay = opened.enter_context(
                Replay(
                    logs,
                    symbols,
                    time_from=start_ns if first_ns is not None else None,
                    seq_to=seq_to,
                    on_gap=on_gap,
                    instruments=instruments,
                    snapshots=snapshots,
                    skip_damaged=skip_damaged,
                )
            )
            self._loop = _features.Loop(
                self._replay._engine,
                plan,
                start_ns=start_ns if first_ns is not None else None,
                from_ns=from_ns,
                to_ns=end_ns,
                from_seq=seq_from or 0,
                first_ns=first_ns or 0,
                for_all_added=symbols is not None,
            )
            if state is not None:
                self._loop.load(state)
            for place, (first, last) in lost.items():
                self._replay._engine.lost_before(place, first, last)
            self._begin_batch()
            self._close = opened.pop_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of at most 65,536 rows, until nothing more is there now."""
        while True:
            batch, more = self._batch(follow=False)
            if batch.num_rows:
                yield batch
            if not more:
                return

    def follow(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """The same, and waits for more; ends after `timeout` seconds without, or at `time_to`."""
        while True:
            batch, more = self._batch(follow=True)
            if batch.num_rows:
                yield batch
            if not more and (self.done or not self._replay._engine.wait(timeout)):
                return

    def _begin_batch(self) -> None:
        """Rows under way: what an error finds made stays, for the next call."""
        self._rows = self._loop.rows()
        self._columns: list[list[float | None]] = [[] for _ in self._functions]

    def _batch(self, follow: bool) -> tuple[pa.RecordBatch, bool]:
        rows = self._rows
        stop = "rows"
        if not self._functions:
            stop = self._loop.run(rows, BATCH_ROWS, follow)
        while self._functions:
            if len(rows) > len(self._columns[0]):
                self._call_functions()
            if stop != "rows" or len(rows) >= BATCH_ROWS:
                break
            stop = self._loop.run(rows, len(rows) + 1, follow)
        self.done = stop == "done"
        self._loop.finish(rows)
        batch = self._pa.record_batch(rows)
        for function, column in zip(self._functions, self._columns, strict=True):
            values = self._pa.array(column, self._pa.float64())
            batch = batch.append_column(function.name, values)
        if self._functions:
            batch = batch.select(["timestamp_ns", "symbol", *self._order])
        self._begin_batch()
        return batch, stop == "rows"

    def _call_functions(self) -> None:
        """A value of each function for the row that was made last."""
        values = []
        for function in self._functions:
            row = self._loop.row(self._rows, self._kept.get(function.name, -1))
            value = function.function(row)
            try:
                values.append(None if value is None else float(value))
            except (TypeError, ValueError):
                raise TypeError(
                    f"a feature must be a number or None: {function.name}={value!r:.60}"
                ) from None
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def save(self) -> bytes:
        """All that is needed to go on in another process behind the rows given so far.

        The bytes are checked when they are taken up, and belong to this version of Tapewire's
        features: they are no archive. Sources are told apart by their names.

        Raises:
            InvalidOption: A book is untrusted at this moment. What it waits for is on the tape
                alone: keep the last state, and go on from there. Or an error came between rows that
                were made and the batch they belong to: iterate once more first.
        """
        if len(self._rows):
            raise InvalidOption(
                f"rows were made and not given, since an error came: rows={len(self._rows)}",
                hint="iterate once more, or go on from the last state",
            )
        positions = {}
        for source in self._replay._sources.each:
            last = source.reader.last_seq
            positions[source.name] = self._before.get(source.name) if last is None else last
        return self._loop.save(positions)

    @property
    def records(self) -> int:
        """Records read so far, those before the first row included."""
        return self._replay.records

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        pa = self._pa
        fixed = [
            pa.field("timestamp_ns", pa.int64(), nullable=False),
            pa.field("symbol", pa.string(), nullable=False),
        ]
        return pa.schema([*fixed, *(pa.field(name, pa.float64()) for name in self._order)])

    def close(self) -> None:
        """Close the logs that were opened here. Closing twice is fine."""
        self._close.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FeatureStream {', '.join(self._order)} over {self._replay!r}>"


def _first_times(
    logs: Logs, seq_from: int | None, seq_to: int | None
) -> tuple[int | None, int | None]:
    """Times of the tape's first record, and of the one in front of `seq_from`.

    No row of `seq_from` is of a time before that: the tape's clock is never behind a record's time,
    and a point of a grid that a record reaches is later than the clock before it. None when logs
    are not ours to move, or have no such record.
    """
    with contextlib.closing(Sources(logs)) as sources:
        check_numbers(sources, seq_from, seq_to)
        if not all(source.own for source in sources.each):
            return None, None
        readers = [source.reader for source in sources.each]
        records = [record for record in map(next_record, readers) if record is not None]
        first = min((record.timestamp_ns for record in records), default=None)
        if not seq_from:
            return first, None
        readers[0].seek_seq(seq_from - 1)
        record = next_record(readers[0])
        if record is None or record.seq != seq_from - 1:
            return first, None
        return first, record.timestamp_ns


def _reopened(
    logs: Logs, state: bytes, opened: contextlib.ExitStack
) -> tuple[dict[str, Any], dict[str, int | None], dict[int, tuple[int, int]]]:
    """Readers of the logs, where the state has read them to, and what they have lost since."""
    positions = _features.positions_in(state)
    sources = opened.enter_context(contextlib.closing(Sources(logs)))
    names = [source.name for source in sources.each]
    if set(names) != set(positions):
        raise InvalidOption(
            f"the state is of other logs: logs={names!r}, state={list(positions)!r}",
            hint="give the same paths, or a dict with those names where they have moved",
        )
    lost = {}
    for place, source in enumerate(sources.each):
        if not source.own:
            raise InvalidOption(
                f"with a state, logs must be paths: {source.name}={source.reader!r}"
            )
        last = positions[source.name]
        gone = begins_late(source.reader) if last is None else stand_behind(source.reader, last)
        if gone is not None:
            lost[place] = gone
    return {source.name: source.reader for source in sources.each}, positions, lost


def feature_batches(
    logs: Logs, names: Names, sample: str = "event", **options: Any
) -> Iterator[pa.RecordBatch]:
    """The rows of `features` in record batches of at most 65,536: in bounded memory.

    Args:
        logs: As for `FeatureStream`, like all that follow.
        names: Features.
        sample: "event", "trade" or a span.
        **options: The others of `FeatureStream`.
    """
    with FeatureStream(logs, names, sample, **options) as stream:
        yield from stream


def features(logs: Logs, names: Names, sample: str = "event", **options: Any) -> pa.Table:
    """Features of the books and trades of a tape, as an Arrow table.

    Columns: `timestamp_ns` (the tape's clock, or the point of the grid), `symbol`, and a double
    for each feature, null where it has no value. The same rows come out of one pass and of slices
    of any size.

    Args:
        logs: As for `FeatureStream`, like all that follow.
        names: Features.
        sample: "event", "trade" or a span.
        **options: The others of `FeatureStream`: symbols, time_from, time_to, instruments, …

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as tape:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = tape.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = tape.append(0x1000, second, timestamp_ns=2000)
        >>> table = replay.features(tmp / "book", ["mid", "ofi"], instruments=Instruments([btc]))
        >>> table.to_pylist()[1]
        {'timestamp_ns': 2000, 'symbol': 'BTCUSDT', 'mid': 100.075, 'ofi': 0.002}
    """
    with FeatureStream(logs, names, sample, **options) as stream:
        return stream._pa.Table.from_batches(list(stream), stream.schema)


def asof(
    trades: Log,
    book: Log,
    names: Names = ("bid", "ask", "mid"),
    **options: Any,
) -> pa.Table:
    """Each trade beside the book as it was just before it, by the times both were received.

    Columns: `timestamp_ns`, `symbol`, `trade_price`, `trade_size`, `trade_sign`, then `names`, all
    as of just before the trade. Of records of one time in two logs, the book's come first.

    Args:
        trades: Log of the trades.
        book: Log of the book.
        names: Features to put beside them.
        **options: As for `features`.
    """
    own = ["trade_price", "trade_size", "trade_sign"]
    if isinstance(names, str | Mapping | PythonFeature):
        names = [names]
    # Names break ties of time: what the book says of a moment goes before the trade of that moment.
    same = trades is book or (
        isinstance(trades, str | os.PathLike)
        and isinstance(book, str | os.PathLike)
        and os.path.realpath(trades) == os.path.realpath(book)
    )
    logs = {"a book": book} if same else {"a book": book, "b trades": trades}
    return features(logs, [*own, *(name for name in names if name not in own)], "trade", **options)
