"""Tapewire and its alternatives in two plots: latency by percentile, and throughput."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.compare import ALTERNATIVES, OURS
from benchmarks.compare.tables import rate, with_latency, with_throughput
from benchmarks.harness import PAYLOAD_BYTES, PERCENTILES
from benchmarks.plots import INK, OURS_COLOR, THEIRS, percentile_axis, save

# They differ in hue and lightness and are the same in every run; only Tapewire is blue.
HUES = ("#57606a", "#a40e6b", "#bc4c00", "#8250df", "#1a7f37", "#6e40aa", "#7c5c00", "#0a7d91",
        "#bf8700", "#0d4429", "#cf222e")  # fmt: skip
COLORS = dict(zip((name for name in ALTERNATIVES if name not in OURS), HUES, strict=True))


def draw(directory: Path, alternatives: list[dict[str, Any]]) -> list[Path]:
    """Draw both, if there is something to show; returns their paths."""
    pictures = {"alternatives-latency.png": _latency, "alternatives-throughput.png": _throughput}
    return save(directory, pictures, alternatives)


def spread(places: list[float], apart: float) -> list[float]:
    """The same places in the same order, from 0 to 1, moved until each is `apart` from the next."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Neighbours that would overlap become one block around their middle, until no two blocks do.
    blocks: list[tuple[float, int]] = []  # middle, members
    for i in order:
        middle, members = _inside(places[i], 1, apart), 1
        while blocks and middle - blocks[-1][0] < apart * (members + blocks[-1][1]) / 2:
            before, count = blocks.pop()
            middle = (before * count + middle * members) / (count + members)
            members += count
            middle = _inside(middle, members, apart)
        blocks.append((middle, members))
    result = list(places)
    ranked = iter(order)
    for middle, members in blocks:
        for k in range(members):
            result[next(ranked)] = middle + (k - (members - 1) / 2) * apart
    return result


def _inside(middle: float, members: int, apart: float) -> float:
    """The middle of a block, moved so that the block is between 0 and 1."""
    half = (members - 1) / 2 * apart
    return min(max(middle, half), 1 - half)


def _latency(alternatives: list[dict[str, Any]]) -> Figure | None:
    """A line per alternative, named at its right end."""
    found = with_latency(alternatives)
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(10, 6.2))
    figure.subplots_adjust(right=0.74)
    ends, labels = [], []
    for alternative in found:
        values = alternative["one_way"]["percentiles"]
        # A percentile beyond the number of samples would only repeat the maximum.
        drawn = [p for p in PERCENTILES if values["count"] * (100 - p) >= 100]
        nines = [100 / (100 - p) for p in drawn]
        heights = [values[f"p{p:g}"] for p in drawn]
        ours = alternative["name"] in OURS
        color = OURS_COLOR if ours else COLORS[alternative["name"]]
        style = "-" if alternative["waits"] == "spins" else (0, (5, 1.6))
        axes.plot(nines, heights, ls=style, lw=2.6 if ours else 1.5, color=color,
                  marker="o", ms=3.6 if ours else 2.8, zorder=3 if ours else 2)  # fmt: skip
        ends.append((nines[-1], heights[-1]))
        labels.append((alternative["title"], color, ours))
    percentile_axis(axes)
    axes.text(0, 1.01, "lower is better; solid: the receiver spins, dashed: it sleeps until woken",
              transform=axes.transAxes, fontsize=9, color="#57606a", va="bottom")  # fmt: skip
    axes.set_title(f"One way between two processes, {PAYLOAD_BYTES} B", pad=20)
    axes.margins(x=0.02)
    _name_lines(axes, ends, labels)
    return figure


def _name_lines(
    axes: Axes, ends: list[tuple[float, float]], labels: list[tuple[str, str, bool]]
) -> None:
    """Names to the right of the axes, each as near to the height of its line as possible."""
    axes.autoscale_view()  # now, not when drawing: the next lines need the positions
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = spread([to_axes.transform(end)[1] for end in ends], 0.047)
    for end, height, (title, color, ours) in zip(ends, heights, labels, strict=True):
        axes.annotate(
            title,
            xy=end,
            xytext=(1.035, height),
            textcoords="axes fraction",
            va="center",
            fontsize=9.5,
            color=color,
            fontweight="bold" if ours else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.7,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def _throughput(alternatives: list[dict[str, Any]]) -> Figure | None:
    """Bars over four decades: a logarithmic axis, with the numbers next to the bars."""
    found = with_throughput(alternatives)
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(found) + 1.3))
    values = [alternative["throughput"]["records_per_s"] for alternative in found]
    colors = [OURS_COLOR if alternative["name"] in OURS else THEIRS for alternative in found]
    axes.barh(range(len(found)), values, color=colors, height=0.66)
    for place, (alternative, value) in enumerate(zip(found, values, strict=True)):
        batched = (
            ", batched" if alternative["batched"] and "batched" not in alternative["title"] else ""
        )
        axes.text(value * 1.06, place, f"{rate(value)}{batched}", va="center", fontsize=9.5,
                  color=INK)  # fmt: skip
    axes.set_yticks(range(len(found)), [alternative["title"] for alternative in found])
    axes.invert_yaxis()
    axes.set_xscale("log")
    lowest = 10 ** int(f"{min(values):e}".partition("e")[2])
    axes.set_xlim(lowest / 2, max(values) * 6)
    axes.xaxis.set_major_formatter(FuncFormatter(_decade))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"records of {PAYLOAD_BYTES} B per second between two processes (logarithmic)")
    axes.set_title("Throughput")
    axes.grid(axis="x")
    return figure


def _decade(records_per_s: float, _: object = None) -> str:
    """As `rate`, without zero digits: 10 k/s."""
    for size, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if records_per_s >= size:
            return f"{records_per_s / size:g} {unit}"
    return f"{records_per_s:g} /s"
