"""Features of books and trades: rows of numbers from logs, computed natively in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from tapewire.errors import InvalidOption
from tapewire.replay import _features
from tapewire.replay._features import FeatureInfo, Row, describe_features
from tapewire.replay.row_stream import RowStream

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.replay.row_stream import RowOptions
    from tapewire.replay.sources import Log, Logs

    Function: TypeAlias = Callable[[Row], float | None]
    Name: TypeAlias = "str | PythonFeature | Mapping[str, Function | PythonFeature]"
    FeatureNames: TypeAlias = "Name | Iterable[Name]"

__all__ = [
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


@dataclass(frozen=True)
class PythonFeature:
    """A feature computed by a Python function, as returned by `feature`.

    Attributes:
        name: Name of the column.
        function: Called with a `Row` for each row; None becomes null.
        look_back_ns: The span of the trades that it can access.
    """

    name: str
    function: Function
    look_back_ns: int = 0

    def __call__(self, row: Row) -> float | None:
        """Return the value for a row."""
        return self.function(row)


def feature(
    *, lookback: str | None = None, name: str | None = None
) -> Callable[[Function], PythonFeature]:
    """Make a feature from a Python function.

    The function is called once for each row, with a `Row`. A call takes some microseconds, a native
    feature nanoseconds. The function may use `row.book`, native features of the same row that are
    requested with it (``row["mid"]``), and `row.trades`. It must not keep state between calls, so
    that slices give the same bits.

    Args:
        lookback: Span of `row.trades`, such as "5s"; None: no trades.
        name: Name of the column; None takes that of the function.

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


def _split(
    names: FeatureNames, fixed: Collection[str]
) -> tuple[list[str], list[PythonFeature], list[str]]:
    """Return native names, functions, and the columns in the requested order."""
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
    duplicates = {name for name in order if order.count(name) > 1 or name in fixed}
    if duplicates or not order:
        what = f"duplicate column: name={min(duplicates)!r}" if duplicates else "no feature given"
        raise InvalidOption(what, hint="replay.describe_features() lists the features")
    return native, functions, order


class FeatureStream(RowStream):
    """Rows of features as record batches, up to the current end of the logs.

    A later iteration continues with the records appended since.

    Args:
        logs: As for `Replay`: a path, several, or a dict from name to log; books and trades may be
            in one or in many.
        names: Names of features, as `describe_features` lists them, functions made by `feature`,
            and dicts from a name to a function.
        sample: "event": a row after each book event and each trade, with the state after it.
            "trade": a row at each trade, with the state just before it. A span ("100ms"): a row at
            each multiple of it since the epoch, after the first record of the logs up to the last,
            with the state just before it.
        symbols: Instruments, as for `Replay`. A grid has rows for each of them, null if nothing is
            known. None: all instruments in the logs, each from its first record on.
        time_from: Time of the first row; None: from the start.
        time_to: Rows are before this time; None: to the end.
        seq_from: For one log: rows produced by this record or a later one; a row of a grid belongs
            to the record with which the log reaches its time. None: from the start.
        seq_to: For one log: rows of records before this sequence number. For many: a dict from the
            name of a log to the sequence number where it ends. None: to the end.
        instruments: Names and scales; None takes the nearest `instruments.json`.
        on_gap: As for `Replay`.
        snapshots: With `symbols` and `time_from` or `seq_from`, start from the latest book
            snapshots.
        skip_damaged: As for `Replay`.
        state: The result of `save`: continue after it. `time_to`, `seq_to` and new logs may differ
            from then; the other arguments must be the same.
        finished: With a state: names of its logs that are read to their end. They need not be in
            `logs`, and remain in the next state.
        venues: Add a column `venue`, with the plain symbol in `symbol`. False: `symbol` contains
            the venue where several venues have the symbol.

    Attributes:
        done: Whether `time_to` or `seq_to` has been reached.
        findings: Snapshots that were skipped, with the reason.
    """

    def __init__(
        self,
        logs: Logs,
        names: FeatureNames,
        sample: str = "event",
        *,
        venues: bool = False,
        **options: Unpack[RowOptions],
    ) -> None:
        self._fixed = ["timestamp_ns", "venue", "symbol"] if venues else ["timestamp_ns", "symbol"]
        native, self._functions, self._order = _split(names, self._fixed)
        with_trades = [f for f in self._functions if f.look_back_ns]
        self._look_backs = {f.name: i for i, f in enumerate(with_trades)}
        plan = _features.Plan(native, sample, [f.look_back_ns for f in with_trades])
        super().__init__(logs, plan, venues=venues, **options)

    def _begin_batch(self) -> None:
        super()._begin_batch()
        self._columns: list[list[float | None]] = [[] for _ in self._functions]

    def _fill(self, follow: bool) -> str:
        if not self._functions:
            return super()._fill(follow)
        stop = "rows"
        while True:
            if len(self._rows) > len(self._columns[0]):
                self._call_functions()
            if stop != "rows" or len(self._rows) >= self._batch_rows:
                return stop
            stop = self._loop.run(self._rows, len(self._rows) + 1, follow)

    def _finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for function, column in zip(self._functions, self._columns, strict=True):
            values = self._pa.array(column, self._pa.float64())
            batch = batch.append_column(function.name, values)
        return super()._finished(batch)

    def _call_functions(self) -> None:
        """Call each function for the last row."""
        values = []
        for function in self._functions:
            row = self._loop.row(self._rows, self._look_backs.get(function.name, -1))
            value = function.function(row)
            try:
                values.append(None if value is None else float(value))
            except (TypeError, ValueError):
                raise TypeError(
                    f"the value of a feature must be a number or None: "
                    f"{function.name}={value!r:.60}"
                ) from None
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        pa = self._pa
        return pa.schema(
            [
                pa.field("timestamp_ns", pa.int64(), nullable=False),
                *(pa.field(name, pa.string(), nullable=False) for name in self._fixed[1:]),
                *(pa.field(name, pa.float64()) for name in self._order),
            ]
        )

    def __repr__(self) -> str:
        return f"<FeatureStream {', '.join(self._order)} over {self._sources!r}>"


def feature_batches(
    logs: Logs, names: FeatureNames, sample: str = "event", **options: Any
) -> Iterator[pa.RecordBatch]:
    """Iterate over the rows of `features` in batches of at most 65,536, in bounded memory.

    Args:
        logs: As for `FeatureStream`, like the other arguments.
        names: Features.
        sample: "event", "trade" or a span.
        **options: The other arguments of `FeatureStream`.
    """
    with FeatureStream(logs, names, sample, **options) as stream:
        yield from stream


def features(logs: Logs, names: FeatureNames, sample: str = "event", **options: Any) -> pa.Table:
    """Return features of the books and trades in logs as an Arrow table.

    Columns: `timestamp_ns` (the time of the replay, or the point of the grid), `symbol`
    (``venue:symbol`` if several venues of these logs have it), and a double for each feature, null
    if it has no value. One pass and slices of any size give the same rows.

    Args:
        logs: As for `FeatureStream`, like the other arguments.
        names: Features.
        sample: "event", "trade" or a span.
        **options: The other arguments of `FeatureStream`: symbols, time_from, time_to, …

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as writer:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = writer.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = writer.append(0x1000, second, timestamp_ns=2000)
        >>> table = replay.features(tmp / "book", ["mid", "ofi"], instruments=Instruments([btc]))
        >>> table.to_pylist()[1]
        {'timestamp_ns': 2000, 'symbol': 'BTCUSDT', 'mid': 100.075, 'ofi': 0.002}
    """
    with FeatureStream(logs, names, sample, **options) as stream:
        return stream._pa.Table.from_batches(list(stream), stream.schema)


def asof(
    trades: Log,
    book: Log,
    names: FeatureNames = ("bid", "ask", "mid"),
    **options: Any,
) -> pa.Table:
    """Join each trade with the book as it was just before it, by the times both were received.

    Columns: `timestamp_ns`, `symbol`, `trade_price`, `trade_size`, `trade_sign`, then `names`, all
    as of just before the trade. If records of the two logs have the same time, the book's come
    first.

    Args:
        trades: Log of the trades.
        book: Log of the book.
        names: Features to join with the trades.
        **options: As for `features`.
    """
    own = ["trade_price", "trade_size", "trade_sign"]
    if isinstance(names, str | Mapping | PythonFeature):
        names = [names]
    # For equal times the names of the logs decide: book events are applied before trades.
    same = trades is book or (
        isinstance(trades, str | os.PathLike)
        and isinstance(book, str | os.PathLike)
        and os.path.realpath(trades) == os.path.realpath(book)
    )
    logs = {"a book": book} if same else {"a book": book, "b trades": trades}
    return features(logs, [*own, *(name for name in names if name not in own)], "trade", **options)
