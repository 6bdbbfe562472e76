"""The plots of the demo's page, as SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapewire.demo.measure import Hop, Measures
from tapewire.demo.paths import SYMBOL
from tapewire.demo.pipeline import Computed
from tapewire.page import Panel, Scale, figure, nines
from tapewire.text import duration

__all__ = ["features", "latencies", "market", "throughput", "topology"]

_WIDTH = 1040
_LEFT, _RIGHT = 74, 1024
_MAX_POINTS = 1_200  # of a line: more than it has pixels


def _time_axis(measures: Measures) -> tuple[Scale, list[tuple[float, str]]]:
    scale = Scale(0, measures.seconds, _LEFT, _RIGHT)
    return scale, [(t, f"{t:g} s") for t in scale.ticks(10)]


def _kills(panel: Panel, recoveries: Sequence[dict[str, Any]], *, named: bool) -> None:
    for number, recovery in enumerate(recoveries):
        at = recovery["killed_at_s"]
        back = at + recovery["down_s"] + recovery["back_after_s"]
        panel.band(at, min(back, panel.x.high), "outage")
        if named:
            where = float(panel.x(at)) + 4
            below = panel.y.end + 12 + 13 * (number % 2)  # adjacent names may be close
            panel.text(where, below, f"kill -9 {recovery['victim']}", "killed")


def _thin(times: Any, values: Any) -> tuple[Any, Any]:
    step = max(1, len(times) // _MAX_POINTS)
    return times[::step], values[::step]


def market(measures: Measures, recoveries: Sequence[dict[str, Any]]) -> str:
    """Trades as a line, the strategies' fills as triangles; below, their positions."""
    x, ticks = _time_axis(measures)
    parts = []
    inside = measures.trade_times >= 0
    times, values = measures.trade_times[inside], measures.trade_prices[inside]
    low, high = (values.min(), values.max()) if len(values) else (0, 1)
    margin = max(1, (high - low) * 0.08)
    price = Panel(x, Scale(low - margin, high + margin, 270, 30), "price, in ticks")
    _kills(price, recoveries, named=True)
    price.line(*_thin(times, values), "c0")
    for number, track in enumerate(measures.strategies.values(), 1):
        for up in (True, False):
            chosen = (track.fill_buys == up) & (track.fill_times >= 0)
            price.points(track.fill_times[chosen], track.fill_prices[chosen], f"c{number}", up)
    parts += [price.axes(lambda v: f"{v:,.0f}"), *price.parts]
    reach = max(
        [1.0, *(float(np.abs(t.positions).max(initial=1)) for t in measures.strategies.values())]
    )
    position = Panel(x, Scale(-reach * 1.1, reach * 1.1, 390, 310), "position, in lots")
    _kills(position, recoveries, named=False)
    for number, track in enumerate(measures.strategies.values(), 1):
        position.line(*_thin(track.position_times, track.positions), f"c{number}")
    axes = position.axes(lambda v: f"{v:+,.0f}" if v else "0", ticks, [-reach, 0, reach])
    parts += [axes, *position.parts]
    return figure(_WIDTH, 416, "Price, fills and positions over time", *parts)


def throughput(measures: Measures, recoveries: Sequence[dict[str, Any]]) -> str:
    """Records per second of three queues, one strip each, with the kills marked."""
    x, ticks = _time_axis(measures)
    by_name = {rate.name: rate for rate in measures.rates}
    strips = [("market data", "c0"), ("router", "c1"), ("fills", "c2")]
    titles = {
        "market data": "market data, records per second",
        "router": "orders through the router, per second",
        "fills": "acknowledgements and fills, per second",
    }
    parts = []
    for number, (name, css) in enumerate(strips):
        top = 34 + number * 112
        times, rate = measures.per_second(by_name[name])
        headroom = 1.7 if number == 0 else 1.1  # the first has space for the names of the kills
        highest = max(1.0, float(rate.max()))
        panel = Panel(x, Scale(0, highest * headroom, top + 70, top), titles[name])
        _kills(panel, recoveries, named=number == 0)
        panel.area(times, rate, css)
        last = number == len(strips) - 1
        y_ticks = panel.y.ticks(3)
        parts += [panel.axes(lambda v: f"{v:,.0f}", ticks if last else (), y_ticks), *panel.parts]
    return figure(_WIDTH, 362, "Records per second over time, with the kills marked", *parts)


def latencies(hops: Sequence[Hop]) -> str:
    """Each hop by percentile, with logarithmic axes that enlarge the tail."""
    samples = max(len(hop.ns) for hop in hops)
    x = Scale(0, max(1.0, float(np.log10(max(samples, 10)))), _LEFT, _RIGHT)
    lows = [np.percentile(hop.ns, 1) for hop in hops if len(hop.ns)]
    highs = [hop.max_ns for hop in hops if len(hop.ns)]
    y = Scale(max(100.0, min(lows) * 0.7), max(highs) * 1.4, 300, 20, log=True)
    panel = Panel(x, y)
    for number, hop in enumerate(hops):
        if len(hop.ns):
            # Up to the percentile that has a sample beyond it; the last point is the maximum.
            place = np.linspace(0, np.log10(len(hop.ns)), 160)
            values = np.percentile(hop.ns, 100 * (1 - 10.0**-place), method="higher")
            panel.line(place, values, f"c{number}" + (" whole" if number == len(hops) - 1 else ""))
    marks = [0, 50, 90, 99, 99.9, 99.99]
    x_ticks = [(float(nines(p)), f"p{p:g}") for p in marks if nines(p) <= x.high]
    labels = panel.axes(duration, x_ticks)
    return figure(_WIDTH, 326, "Latency of each hop by percentile", labels, *panel.parts)


def features(computed: Computed) -> str:
    """Spread and imbalance over time, one strip each."""
    end = float(computed.times[-1]) if len(computed.times) else 1.0
    x = Scale(0, end or 1.0, _LEFT, _RIGHT)
    ticks = [(t, f"{t:g} s") for t in x.ticks(10)]
    parts = []
    strips = [
        ("spread_bps", "spread, in basis points", "c0", None),
        ("imbalance5", "imbalance of five levels: 1 all bids, -1 all asks", "c1", (-1.0, 1.0)),
    ]
    for number, (name, title, css, span) in enumerate(strips):
        top = 34 + number * 140
        known = np.isfinite(computed.columns[name])
        times, values = computed.times[known], computed.columns[name][known]
        low, high = span or (0.0, float(values.max(initial=1e-9)) * 1.1)
        panel = Panel(x, Scale(low, high, top + 96, top), title)
        panel.line(*_thin(times, values), css)
        last = number == len(strips) - 1
        parts += [panel.axes(lambda v: f"{v:g}", ticks if last else ()), *panel.parts]
    return figure(_WIDTH, 300, f"Spread and imbalance of {SYMBOL} over time", *parts)


class _Drawing:
    """A drawing of boxes and arrows."""

    def __init__(self) -> None:
        self.parts = [
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="tip" d="M0,0L8,4L0,8z"/></marker></defs>'
        ]

    def text(self, x: float, y: float, text: str, css: str) -> None:
        self.parts.append(
            f'<text class="{css}" x="{x}" y="{y}" text-anchor="middle">{html.escape(text)}</text>'
        )

    def box(self, x: int, y: int, width: int, height: int, css: str, *lines: str) -> None:
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self.parts.append(f'<rect class="{css}" {place} rx="8"/>')
        top = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 18 * number, line, "note" if number else "name")

    def arrow(self, path: str) -> None:
        self.parts.append(f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>')


def topology(result: dict[str, Any]) -> str:
    """The processes, the queues between them, and how many records each queue has."""
    records = {queue["name"]: f"{queue['records']:,}" for queue in result["queues"]}
    killed = {recovery["victim"] for recovery in result["recoveries"]}
    upper, lower = result["strategies"]
    drawing = _Drawing()

    def box(x: int, y: int, width: int, height: int, name: str, *notes: str) -> None:
        css = "box struck" if name in killed else "box"
        drawing.box(x, y, width, height, css, name, *notes)

    wal = f"WAL · {records['exchange WAL']}"
    box(16, 14, 200, 236, "exchange", "matches by price and time", wal)
    box(440, 146, 170, 84, "router", "forwards orders and fills")
    box(440, 54, 170, 50, "snapshotter", "saves the book")
    box(800, 54, 170, 50, "late joiner", "from the latest snapshot")
    box(440, 262, 170, 50, "archiver", "archives the market data")
    box(800, 124, 170, 54, upper, "strategy")
    box(800, 198, 170, 54, lower, "strategy")
    # The market data are drawn around the top and right, so that they cross no order.
    drawing.text(370, 24, f"market data · {records['market data']}", "flow")
    drawing.arrow("M216,32H1006V79H976")
    for y in (151, 225):
        drawing.arrow(f"M1006,79V{y}H976")
    drawing.arrow("M525,32V48")
    drawing.arrow("M610,79H794")
    drawing.text(705, 71, f"snapshots · {result['snapshots']:,}", "flow")
    drawing.arrow("M800,142L616,166")
    drawing.arrow("M610,180L794,158")
    drawing.arrow("M800,218L616,196")
    drawing.arrow("M610,210L794,234")
    for name, y in ((upper, 132), (lower, 256)):
        sent, answered = records[f"{name} out"], records[f"{name} in"]
        drawing.text(705, y, f"out {sent} · in {answered}", "flow")
    drawing.arrow("M440,172H222")
    drawing.text(330, 163, f"orders · {records['router']}", "flow")
    drawing.arrow("M216,204H434")
    drawing.text(330, 222, f"fills · {records['fills']}", "flow")
    drawing.arrow("M116,250V287H434")
    drawing.text(330, 279, "market data", "flow")
    box(800, 262, 170, 50, "archive", "one log per day, for Spark")
    drawing.arrow("M610,287H794")
    drawing.text(705, 279, f"archived · {result['archive']['records']:,}", "flow")
    return figure(_WIDTH, 326, "Processes and the queues between them", *drawing.parts)
