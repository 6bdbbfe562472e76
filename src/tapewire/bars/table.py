"""Bars as Arrow tables, built from logs and from Arrow tables of trades."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.bars.builder import Bar, BarBuilder, BarSpec
from tapewire.errors import TapewireError
from tapewire.log import open_log
from tapewire.protocol.market import TRADE_TICK, Maker, TradeTick

__all__ = ["SCHEMA", "day_bars", "from_log", "from_trades"]

_KEYS = ("venue", "date", "symbol")
_EXACT = pa.decimal128(38, 0)
SCHEMA = pa.schema(
    [
        pa.field("venue", pa.string()),
        pa.field("date", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("bar", pa.int64()),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("open", "high", "low", "close")),
        *(pa.field(name, _EXACT) for name in ("volume", "buy_volume", "notional")),
        pa.field("trades", pa.int64()),
        pa.field("vwap", pa.float64()),
        pa.field("price_scale", pa.int32()),
        pa.field("size_scale", pa.int32()),
        pa.field("complete", pa.bool_()),
    ]
)


def from_trades(
    trades: Any, *, kind: str = "time", size: str | int | float | Decimal = "1m"
) -> pa.Table:
    """Return the bars of a table of trades, by venue, UTC day and symbol.

    Args:
        trades: Trades in the order of the log, as anything that Arrow takes (a table, a pandas or
            Polars frame), with the columns `timestamp_ns`, `price`, `size`, `price_scale`,
            `size_scale` and `side` of the view `trades`; `venue` and `symbol` are optional.
        kind: "time", "tick", "volume" or "dollar".
        size: Of time bars a span that divides a day ("1s", "5m"); else the number of trades, the
            size, or the money (price times size) of a bar.

    Raises:
        InvalidOption: An unknown kind, or an invalid size.

    Example:
        >>> import pyarrow as pa
        >>> trades = pa.table({"timestamp_ns": [1, 2, 3], "price": [100, 103, 99],
        ...                    "size": [5, 1, 4], "side": ["buy", "sell", "buy"],
        ...                    "price_scale": [2, 2, 2], "size_scale": [0, 0, 0]})
        >>> bars = from_trades(trades, kind="tick", size=2)
        >>> bars["close"].to_pylist(), bars["complete"].to_pylist()
        ([103, 99], [True, False])
    """
    spec = BarSpec.parse(kind, size)
    return _by_day(pa.table(trades), spec, {"venue": "", "symbol": ""})


def from_log(
    where: str | os.PathLike[str],
    *,
    kind: str = "time",
    size: str | int | float | Decimal = "1m",
    venue: str = "",
    symbol: str = "",
) -> pa.Table:
    """Return the bars of a log of trades of one instrument, such as an archive's ``…/trades``.

    Six numbers of each trade are held in memory.

    Args:
        where: The log, as for `open_log`.
        kind: As for `from_trades`.
        size: As for `from_trades`.
        venue: Value of the column `venue`.
        symbol: Value of the column `symbol`.

    Raises:
        TapewireError: The log has trades of several instruments.
    """
    spec = BarSpec.parse(kind, size)
    markets: set[int] = set()
    batches = [_columns(ticks, markets) for ticks in _ticks(where)]
    if len(markets) > 1:
        raise TapewireError(
            f"the log has several instruments: market_id={', '.join(map(str, sorted(markets)))}",
            path=os.fspath(where),
            hint="give the log of one symbol, or a table with a column `symbol` to from_trades",
        )
    if not batches:
        return SCHEMA.empty_table()
    made = _by_day(pa.Table.from_batches(batches), spec, {"venue": venue, "symbol": symbol})
    return made.sort_by([("date", "ascending"), ("bar", "ascending")])  # late trades come last


def _ticks(where: str | os.PathLike[str]) -> Iterator[Any]:
    with open_log(where, types={TRADE_TICK}) as log:
        while len(batch := log.read_batch(65_536)):
            yield TradeTick.decode(batch)


def _columns(ticks: Any, markets: set[int]) -> pa.RecordBatch:
    markets.update(np.unique(ticks["market_id"]).tolist())
    names = ("price", "size", "price_scale", "size_scale")
    # The aggressor is the side that did not rest in the book; it may be unknown.
    buys = ticks["is_buyer_maker"] == Maker.SELLER
    columns = {
        "timestamp_ns": ticks["timestamp_ns"].astype(np.int64),
        **{name: np.ascontiguousarray(ticks[name]) for name in names},
        "side": pa.DictionaryArray.from_arrays(
            np.where(buys, 0, 1).astype("i4"), ["buy", "other"]
        ).cast(pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _by_day(table: pa.Table, spec: BarSpec, names: dict[str, str]) -> pa.Table:
    """The bars of each venue, UTC day and symbol; `names` are defaults of missing columns."""
    table = _with_keys(table, names)
    made: list[pa.RecordBatch] = []
    for key in (
        table.select(_KEYS).group_by(list(_KEYS), use_threads=False).aggregate([]).to_pylist()
    ):
        mine = [pc.equal(table[name], value) for name, value in key.items()]
        chosen = table.filter(pc.and_(pc.and_(mine[0], mine[1]), mine[2]))
        made += day_bars(tuple(key.values()), chosen.to_batches(), spec)
    return pa.Table.from_batches(made, SCHEMA)


def _with_keys(table: pa.Table, names: dict[str, str]) -> pa.Table:
    for name in ("venue", "symbol", "side"):
        if name in table.column_names:  # Polars exports string views, which filters do not support
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table[name].cast(pa.string()))
        elif name in names:
            given = pa.array([names[name]] * table.num_rows, pa.string())
            table = table.append_column(name, given)
    days = pc.strftime(table["timestamp_ns"].cast(pa.timestamp("ns", "UTC")), format="%Y-%m-%d")
    if "date" in table.column_names:
        table = table.drop_columns(["date"])
    return table.append_column("date", days)


def day_bars(
    names: Sequence[str], batches: Iterable[pa.RecordBatch], spec: BarSpec
) -> Iterator[pa.RecordBatch]:
    """Yield the bars of one symbol's day, a batch for each batch of trades that completes any.

    Args:
        names: Venue, date and symbol of the bars.
        batches: The day's trades in the order of the log, with the columns of `from_trades`.
        spec: When a bar ends.

    Raises:
        TapewireError: The scales change within the day, or a sum has more than 38 digits.
    """
    builder: BarBuilder | None = None
    scales, count = (0, 0), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        found = _scales(batch)
        if builder is None:
            scales = found[0]
            builder = BarBuilder(spec, *scales)
        if found != [scales]:
            raise TapewireError(
                f"the scales of trades change within a day: {'/'.join(names)}, "
                f"price_scale and size_scale are {scales} and {found[-1]}"
            )
        made = builder.add(
            batch["timestamp_ns"].to_numpy(),
            batch["price"].to_numpy(),
            batch["size"].to_numpy(),
            pc.fill_null(pc.equal(batch["side"], "buy"), False).to_numpy(zero_copy_only=False),
        )
        if made:
            yield _batch(names, count, made, scales)
            count += len(made)
    last = builder.finish() if builder is not None else None
    if last is not None:
        yield _batch(names, count, [last], scales)


def _scales(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """Every pair of scales in a batch."""
    pairs = np.column_stack([batch[name].to_numpy() for name in ("price_scale", "size_scale")])
    return [(int(a), int(b)) for a, b in np.unique(pairs, axis=0).tolist()]


def _batch(
    names: Sequence[str], first: int, made: list[Bar], scales: tuple[int, int]
) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        name: [value] * len(made) for name, value in zip(_KEYS, names, strict=True)
    }
    columns["bar"] = list(range(first, first + len(made)))
    for field in Bar.__dataclass_fields__:
        values = [getattr(bar, field) for bar in made]
        exact = SCHEMA.field(field).type == _EXACT
        columns[field] = [Decimal(value) for value in values] if exact else values
    columns["vwap"] = [bar.vwap(scales[0]) for bar in made]
    columns["price_scale"] = [scales[0]] * len(made)
    columns["size_scale"] = [scales[1]] * len(made)
    try:
        return pa.RecordBatch.from_pydict(columns, SCHEMA)
    except pa.ArrowInvalid as error:
        raise TapewireError(f"a bar has more than 38 digits: {'/'.join(names)}: {error}") from None
