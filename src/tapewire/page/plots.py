"""The plots of the reports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.clock import DAY_NS
from tapewire.page import Panel, Scale, figure
from tapewire.page.picture import BookPicture
from tapewire.text import duration

__all__ = [
    "PlotMark",
    "Series",
    "book",
    "clocks",
    "features",
    "flaws_over_time",
    "spread",
    "time_axis",
]

Array = np.ndarray[Any, Any]
WIDTH, LEFT, RIGHT = 1040, 86, 1024
_COLUMNS, _ROWS = 260, 64  # of the heat map
_LANE_LETTERS = 30  # of the name of a lane
_STEPS_S = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600),
    *(2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 30 * 86_400),
    *(90 * 86_400, 365 * 86_400, 730 * 86_400, 1825 * 86_400, 3650 * 86_400, 36_500 * 86_400),
)


@dataclass(frozen=True)
class PlotMark:
    """A marked interval on the time axis. `css`: "flaw" for a defect, "dim" if unknown."""

    begin_ns: int
    end_ns: int
    css: str = "flaw"


@dataclass(frozen=True)
class Series:
    """One feature over time: minimum, mean and maximum of each interval."""

    name: str
    times_ns: Array
    low: Array
    mean: Array
    high: Array


def time_axis(begin_ns: int, end_ns: int) -> tuple[Scale, list[tuple[float, str]]]:
    """Return a scale of nanoseconds and its ticks, with labels in UTC.

    Example:
        >>> _, ticks = time_axis(1_700_006_400 * 10**9, 1_700_010_000 * 10**9)
        >>> [text for _, text in ticks][:3]
        ['2023-11-15', '00:10', '00:20']
    """
    scale = Scale(begin_ns, max(end_ns, begin_ns + 1), LEFT, RIGHT)
    seconds = (end_ns - begin_ns) / 1e9
    step_s = next((s for s in _STEPS_S if seconds / s <= 8), _STEPS_S[-1])
    step = int(step_s * 10**9)
    first = -(-begin_ns // step) * step
    return scale, [(tick, _label(tick, step)) for tick in range(first, end_ns + 1, step)]


def _label(time_ns: int, step_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    when = dt.datetime.fromtimestamp(seconds, dt.UTC)
    if step_ns >= DAY_NS or time_ns % DAY_NS == 0:
        return when.strftime("%Y-%m-%d")
    if step_ns >= 60 * 10**9:
        return when.strftime("%H:%M")
    text = when.strftime("%H:%M:%S")
    return text if step_ns >= 10**9 else f"{text}.{rest // 10**6:03d}"


def _marked(panel: Panel, marks: Iterable[PlotMark]) -> None:
    """Draw the marks; those less than a pixel apart are merged, as a day may have thousands."""
    low, high = panel.x.low, panel.x.high
    pixel = (high - low) / (panel.x.end - panel.x.start)
    open_: dict[str, PlotMark] = {}
    for mark in sorted(marks, key=lambda mark: mark.begin_ns):
        if mark.end_ns < low or mark.begin_ns > high:
            continue
        before = open_.get(mark.css)
        if before is not None and mark.begin_ns <= before.end_ns + pixel:
            end_ns = max(before.end_ns, mark.end_ns)
            open_[mark.css] = PlotMark(before.begin_ns, end_ns, mark.css)
            continue
        if before is not None:
            _span(panel, before)
        open_[mark.css] = mark
    for mark in open_.values():
        _span(panel, mark)


def _span(panel: Panel, mark: PlotMark) -> None:
    low, high = panel.x.low, panel.x.high
    panel.span(max(mark.begin_ns, low), min(mark.end_ns, high), mark.css)


def _short(name: str, letters: int) -> str:
    """Shorten a name to `letters`, keeping its start and its end."""
    if len(name) <= letters:
        return name
    half = letters // 2
    return f"{name[: letters - half - 1]}…{name[-half:]}"


def _number(value: float) -> str:
    """Format the value of a tick, with an exponent only if it is very small or very large."""
    if value and not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3g}"
    text = f"{value:,.8f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _range(*values: Array) -> tuple[float, float]:
    known = np.concatenate([v[np.isfinite(v)] for v in values])
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    margin = (high - low) * 0.06 or max(abs(high) * 0.01, 1e-9)
    return low - margin, high + margin


def book(picture: BookPicture, marks: Sequence[PlotMark] = ()) -> str:
    """Plot the book as a heat map of sizes, with the best prices as lines."""
    thin = picture.thin(_COLUMNS)
    begin, end = int(thin.times_ns[0]), int(picture.times_ns[-1])
    x, ticks = time_axis(begin, max(end, begin + 1))
    bid, ask = picture.best("bid"), picture.best("ask")
    low, high = _range(bid, ask)
    gap = np.nanmedian(ask - bid) if np.isfinite(ask - bid).any() else 0.0
    reach = max((high - low) * 0.25, 12 * gap)
    panel = Panel(x, Scale(low - reach, high + reach, 330, 24), "price, shaded by size")
    edges = np.linspace(low - reach, high + reach, _ROWS + 1)
    step = (thin.times_ns[-1] - thin.times_ns[0]) / max(1, len(thin) - 1)
    columns = np.append(thin.times_ns, min(end, thin.times_ns[-1] + step))
    shades = {
        "c1": _sizes(thin.bid_prices, thin.bid_sizes, edges),
        "c2": _sizes(thin.ask_prices, thin.ask_sizes, edges),
    }
    known = np.concatenate([s[s > 0] for s in shades.values()])
    if len(known):
        least, most = np.log(np.percentile(known, 5)), np.log(np.percentile(known, 99))
        for css, sizes in shades.items():
            with np.errstate(divide="ignore"):
                depth = (np.log(sizes) - least) / ((most - least) or 1.0)
            # The faintest shade is a level; without a level there is no shade.
            shown = np.where(sizes > 0, np.clip(0.12 + 0.6 * depth, 0.12, 0.72), 0)
            panel.cells(columns, edges, shown, css)
    _marked(panel, marks)
    panel.steps(picture.times_ns, bid, "c1")
    panel.steps(picture.times_ns, ask, "c2")
    label = f"Book of {picture.name} over time"
    return figure(WIDTH, 358, label, panel.axes(_number, ticks), *panel.parts)


def _sizes(prices: Array, sizes: Array, edges: Array) -> Array:
    """Return the total size between adjacent edges at each point in time."""
    made = np.zeros((len(edges) - 1, len(prices)))
    rows = np.searchsorted(edges, prices, "right") - 1
    inside = np.isfinite(prices) & (rows >= 0) & (rows < len(made))
    points = np.broadcast_to(np.arange(len(prices))[:, None], prices.shape)
    np.add.at(made, (rows[inside], points[inside]), sizes[inside])
    return made


def spread(picture: BookPicture, marks: Sequence[PlotMark] = ()) -> str:
    """Plot the spread in basis points; it is negative if the book is crossed."""
    x, ticks = time_axis(int(picture.times_ns[0]), int(picture.times_ns[-1]))
    values = picture.spread_bps
    low, high = _range(values, np.zeros(1))
    panel = Panel(x, Scale(min(low, 0), high, 150, 24), "spread, basis points")
    _marked(panel, marks)
    panel.steps(picture.times_ns, values, "c4")
    label = f"Spread of {picture.name} over time"
    axes = panel.axes(_number, ticks, panel.y.ticks(3))
    return figure(WIDTH, 178, label, axes, *panel.parts)


def features(series: Sequence[Series], label: str) -> str:
    """Plot each feature in a panel: the mean as a line, the range as a band."""
    begin = min(int(one.times_ns[0]) for one in series if len(one.times_ns))
    end = max(int(one.times_ns[-1]) for one in series if len(one.times_ns))
    x, ticks = time_axis(begin, end)
    parts, top = [], 30
    for number, one in enumerate(series):
        css = f"c{(1, 4, 2, 3)[number % 4]}"
        panel = Panel(x, Scale(*_range(one.low, one.high), top + 84, top), one.name)
        known = np.isfinite(one.low) & np.isfinite(one.high)
        panel.ribbon(one.times_ns, np.where(known, one.low, np.nan), one.high, css)
        panel.steps(one.times_ns, one.mean, css)
        last = number == len(series) - 1
        axes = panel.axes(_number, ticks if last else (), panel.y.ticks(3))
        parts += [axes, *panel.parts]
        top += 124
    return figure(WIDTH, top - 124 + 114, label, *parts)


def clocks(streams: Mapping[str, Sequence[Mapping[str, Any]]], label: str) -> str:
    """Plot the latency of each stream: minimum, median and 99th percentile of five minutes."""
    rows = [row for one in streams.values() for row in one]
    begin = min(row["timestamp_ns"] for row in rows)
    end = max(row["timestamp_ns"] for row in rows) + 300 * 10**9
    x, ticks = time_axis(begin, end)
    parts, top = [], 30
    for number, (stream, own) in enumerate(sorted(streams.items())):
        times = np.array([row["timestamp_ns"] for row in own] + [own[-1]["timestamp_ns"] + 3e11])
        lines = {}
        for key in ("least_ns", "p50_ns", "p99_ns"):
            values = [np.nan if row[key] is None else row[key] / 1e6 for row in own]
            lines[key] = np.array([*values, values[-1]])
        low, high = _range(*lines.values())
        panel = Panel(x, Scale(low, high, top + 78, top), f"{stream}: latency")
        panel.ribbon(times, lines["least_ns"], lines["p99_ns"], "c1")
        panel.steps(times, lines["least_ns"], "c0")
        panel.steps(times, lines["p50_ns"], "c1")
        last = number == len(streams) - 1
        axes = panel.axes(
            lambda v: duration(v * 1e6) if v else "0", ticks if last else (), panel.y.ticks(3)
        )
        parts += [axes, *panel.parts]
        top += 116
    return figure(WIDTH, top - 116 + 108, label, *parts)


def flaws_over_time(
    rows: Sequence[tuple[str, Sequence[tuple[int, int]], Sequence[PlotMark]]],
    begin_ns: int,
    end_ns: int,
) -> str:
    """Plot a lane for each symbol: when it was recorded, and when it had defects."""
    x, ticks = time_axis(begin_ns, end_ns)
    x = Scale(x.low, x.high, 230, RIGHT)
    panel = Panel(x, Scale(0, 1, 20 + 26 * len(rows), 16))
    for number, (name, recorded, marks) in enumerate(rows):
        top = 18 + 26 * number
        lane = Panel(x, Scale(0, 1, top + 16, top))
        _marked(lane, [PlotMark(begin, end, "lane") for begin, end in recorded])
        _marked(lane, marks)
        panel.parts += lane.parts
        panel.text(218, top + 13, _short(name, _LANE_LETTERS), "", "end")
    axes = panel.axes(lambda _: "", ticks, [])
    label = "Recording times and defects of each symbol"
    return figure(WIDTH, 46 + 26 * len(rows), label, axes, *panel.parts)
