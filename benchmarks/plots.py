"""One plot per family of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.harness import PERCENTILES, Row
from benchmarks.report import bar, duration, number

LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # readable where a line passes
OURS_COLOR, THEIRS, MISS, INK = "#1f6feb", "#8b949e", "#d1242f", "#24292f"
CUT = 3.0
LINES = ("#1f6feb", "#2da44e", "#bf8700", "#8250df", "#cf222e")
STYLE = {
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#57606a",
    "axes.axisbelow": True,
    "grid.color": "#d0d7de",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def draw(directory: Path, rows: list[Row]) -> list[Path]:
    """Draw every plot that has rows; returns their paths."""
    pictures = {
        "bars.png": _bars,
        "throughput.png": _throughput,
        "calls.png": _calls,
        "latency.png": _latency,
        "hops.png": _hops,
        "segments.png": _segments,
        "books.png": _books,
    }
    return save(directory, pictures, rows)


def save(directory: Path, pictures: dict[str, Callable[[Any], Any]], results: Any) -> list[Path]:
    """Save the plots that have something to show."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    with plt.rc_context(STYLE):
        for name, picture in pictures.items():
            if (figure := picture(results)) is not None:
                figure.savefig(directory / name, bbox_inches="tight")
                plt.close(figure)
                drawn.append(directory / name)
    return drawn


def _bars(rows: list[Row]):
    """The used part of each bar: 1 is the bar itself."""
    judged = [
        row for row in rows if row.verdict and row.bar[1] > 0 and not row.family.startswith("seek")
    ]
    judged += [
        row for row in rows if row.family.startswith("seek") and row.what.startswith("growth")
    ]
    judged += [
        row for row in rows if row.family.startswith("seek") and "100 segments, any" in row.what
    ]
    if not judged:
        return None
    used = [_used(row) for row in judged]
    figure, axes = plt.subplots(figsize=(9, 0.36 * len(judged) + 1.2))
    places = range(len(judged))
    colors = [MISS if value > 1 else OURS_COLOR for value in used]
    used = [min(value, CUT) for value in used]  # an outlier must not flatten all others
    axes.barh(places, used, color=colors, height=0.62)
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.set_xlim(0, max(1.35, max(used) * 1.3))
    for place, row, value in zip(places, judged, used, strict=True):
        measured = f"{row.ratio:.3g} ×" if row.against else f"{number(row.value)} {row.unit}"
        axes.text(
            max(value, 1) + 0.03, place, f"{measured}   ({bar(row)})", va="center", fontsize=8.5
        )
    axes.set_yticks(places, [f"{row.family}: {row.what.strip()}" for row in judged], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlabel("used part of the bar (below 1: met)")
    axes.set_title("Bars of this run")
    axes.grid(axis="x")
    return figure


def tick(ns: float, _: object = None) -> str:
    """As `duration`, without zero digits: 10 µs."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def _used(row: Row) -> float:
    sign, limit = row.bar
    value = row.ratio if row.against else row.value
    return value / limit if sign == "≤" else limit / value


def _pairs(axes: Axes, rows: list[Row], label: str, title: str) -> None:
    """Tapewire and the comparison, next to each other, with the bar as a mark."""
    reach = max(
        max(row.value, row.against_value, row.against_value * (row.bar[1] if row.bar else 0))
        for row in rows
    )
    pad = reach * 0.008
    for place, row in enumerate(rows):
        axes.barh(place - 0.19, row.value, 0.36, color=OURS_COLOR)
        axes.barh(place + 0.19, row.against_value, 0.36, color=THEIRS)
        axes.text(
            row.value + pad,
            place - 0.19,
            number(row.value),
            va="center",
            fontsize=9,
            bbox=LABEL,
            zorder=3,
        )
        axes.text(
            row.against_value + pad,
            place + 0.19,
            f"{row.against}: {number(row.against_value)}",
            va="center",
            fontsize=9,
            bbox=LABEL,
            zorder=3,
        )
        if row.bar is not None:
            limit = row.bar[1] * row.against_value
            axes.plot([limit, limit], [place - 0.42, place + 0.42], color=MISS, linewidth=1.6)
    axes.set_xlim(0, reach * 1.25)
    axes.set_yticks(range(len(rows)), [row.what.strip() for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_title(title)
    axes.grid(axis="x")


def _throughput(rows: list[Row]):
    panels = [
        ("append", "ns per call", "One record per call (red: the bar)"),
        ("next", "ns per call", ""),
        ("append_batch", "ns per record", "Many records per call"),
        ("read_batch", "GB/s of log (higher is better)", ""),
    ]
    found = [([r for r in rows if r.family == f and r.against], x, t) for f, x, t in panels]
    found = [panel for panel in found if panel[0]]
    if not found:
        return None
    heights = [len(panel[0]) + 0.6 for panel in found]
    figure, all_axes = plt.subplots(
        len(found),
        1,
        figsize=(9, 0.8 * sum(heights) + 0.5),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )
    for axes, (chosen, label, title) in zip(all_axes[:, 0], found, strict=True):
        _pairs(axes, chosen, label, title)
    return figure


def _curves(axes: Axes, named: Iterable[tuple[str, dict[str, float]]], title: str) -> None:
    """Lines of percentiles, with a legend."""
    for color, (name, values) in zip(LINES, named, strict=False):
        # A percentile beyond the number of samples would only repeat the maximum.
        drawn = [p for p in PERCENTILES if values["count"] * (100 - p) >= 100]
        nines = [100 / (100 - p) for p in drawn]
        heights = [values[f"p{p:g}"] for p in drawn]
        axes.plot(nines, heights, "o-", ms=3.5, lw=1.6, color=color, label=name)
    percentile_axis(axes)
    axes.set_title(title)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def percentile_axis(axes: Axes) -> None:
    """Nines to the right, time upwards, both logarithmic."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    shown = (50, 90, 99, 99.9, 99.99)
    axes.xaxis.set_major_locator(FixedLocator([100 / (100 - p) for p in shown]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 - 100 / x:g} %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(tick))
    axes.set_xlabel("percentile")
    axes.set_ylabel("time")
    axes.grid(which="major")


def _with_percentiles(rows: list[Row], *families: str) -> list[tuple[str, dict[str, float]]]:
    return [
        (row.what.strip().removesuffix(", p50").removesuffix(", p99"), row.detail["percentiles"])
        for row in rows
        if row.family in families and "percentiles" in row.detail
    ]


def _calls(rows: list[Row]):
    named = _with_percentiles(rows, "append", "roll")
    if not named:
        return None
    figure, axes = plt.subplots(figsize=(8, 4.6))
    _curves(axes, named, "Single appends, each timed (the timer's cost included)")
    return figure


def _latency(rows: list[Row]):
    named = _with_percentiles(rows, "one_way")
    if not named:
        return None
    figure, axes = plt.subplots(figsize=(8, 5))
    _curves(axes, named, "One way between two Python processes, 64 B")
    for row in rows:
        if row.what.strip().startswith("bare cache line"):
            _limit(axes, row.value, "bare cache line")
        elif row.against == "bare futex wake":
            _limit(axes, row.against_value * 1e3, "bare futex wake")
    return figure


def _hops(rows: list[Row]):
    named = _with_percentiles(rows, "hops")
    if not named:
        return None
    figure, axes = plt.subplots(figsize=(8, 4.6))
    _curves(axes, named, "Feed → strategy → router → strategy, three Python processes, 64 B")
    return figure


def _limit(axes: Axes, ns: float, name: str) -> None:
    axes.axhline(ns, color=THEIRS, linestyle="--", linewidth=1)
    axes.text(1, ns, f"{name}, {duration(ns)} ", transform=axes.get_yaxis_transform(), ha="right",
              va="bottom", fontsize=8.5, color="#57606a")  # fmt: skip


def _segments(rows: list[Row]):
    """The cost of a longer history: seeks and opening by number of segments."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        if (segments := row.detail.get("segments")) is None:
            continue
        if row.family == "open":
            name = f"open, {row.detail['how']} before"
            ns = row.value * 1e6
        else:
            where = "anywhere" if row.detail["where"] == "anywhere" else "active segment"
            name = f"{row.family}, {where}"
            ns = row.value * 1e3
        lines.setdefault(name, {})[segments] = ns
    if not lines:
        return None
    figure, axes = plt.subplots(figsize=(8, 4.6))
    colors = iter((*LINES, "#57606a"))
    for name, values in lines.items():
        dash = "--" if "active" in name or "killed" in name else "-"
        axes.plot(
            list(values), list(values.values()), "o", ls=dash, ms=4, color=next(colors), label=name
        )
    _limit(axes, 100_000, "bar of a seek")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(tick))
    axes.set_xlabel("segments in the queue")
    axes.set_ylabel("time (seeks p50, opening best)")
    axes.set_title("A longer history")
    axes.grid(which="major")
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _books(rows: list[Row]):
    """Events per second through every book, one panel per market."""
    markets: dict[str, list[Row]] = {}
    for row in rows:
        if "market" in row.detail:
            markets.setdefault(row.detail["market"], []).append(row)
    if not markets:
        return None
    heights = [len(chosen) + 0.8 for chosen in markets.values()]
    figure, all_axes = plt.subplots(
        len(markets),
        1,
        figsize=(9, 0.42 * sum(heights) + 0.8),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )
    for axes, (market, found) in zip(all_axes[:, 0], markets.items(), strict=True):
        chosen = sorted(found, key=lambda row: -row.value)
        places = range(len(chosen))
        colors = [OURS_COLOR if row.detail["ours"] else THEIRS for row in chosen]
        axes.barh(places, [row.value for row in chosen], color=colors, height=0.62)
        for place, row in zip(places, chosen, strict=True):
            axes.text(row.value, place, f" {number(row.value)}", va="center", fontsize=9)
        axes.set_yticks(places, [row.detail["book"] for row in chosen])
        axes.invert_yaxis()
        axes.margins(x=0.08)
        axes.set_title(f"{market}, {chosen[0].detail['events']:,} events", fontsize=10.5)
        axes.grid(axis="x")
    axes.set_xlabel(
        "million events per second, best bid and ask read after each (higher is better)"
    )
    return figure
