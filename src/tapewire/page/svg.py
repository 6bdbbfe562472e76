"""Plots as inline SVG: scales, axes, lines and points; page.css defines the colours."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Panel", "Scale", "figure", "line_points", "nines"]

Array = np.ndarray[Any, Any]
SHADES = 6  # of a heat map


def nines(percentile: Array | float) -> Any:
    """Return the position of a percentile on an axis with equal distances between nines."""
    return -np.log10(1 - np.asarray(percentile, float) / 100)


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, values: Any) -> Any:
        """Return the pixels of values."""
        low, high, values = self.low, self.high, np.asarray(values, float)
        if self.log:
            low, high, values = math.log10(low), math.log10(high), np.log10(values)
        return self.start + (values - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values on the axis, at least two, as one shows no scale.

        Example:
            >>> Scale(999.1, 1000.7, 0, 100).ticks(3)
            [999.5, 1000.0, 1000.5]
        """
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [10.0**p for p in powers if self.low <= 10.0**p <= self.high]
        found = self._multiples(count)
        return found if len(found) > 1 or self.high == self.low else self._multiples(2 * count)

    def _multiples(self, count: int) -> list[float]:
        raw = (self.high - self.low) / count or 1.0
        step = 10.0 ** math.floor(math.log10(raw))
        step *= next(m for m in (1, 2, 5, 10) if m * step >= raw)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def line_points(x: Array, y: Array) -> str:
    """Return the `points` of a polyline."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


@dataclass
class Panel:
    """One pair of axes with its plot."""

    x: Scale
    y: Scale
    title: str = ""
    parts: list[str] = field(default_factory=list)

    def line(self, x: Array, y: Array, css: str) -> None:
        """Draw a line through points; `css` is the class of its colour."""
        if len(x):
            points = line_points(self.x(x), self.y(y))
            self.parts.append(f'<polyline class="line {css}" points="{points}"/>')

    def area(self, x: Array, y: Array, css: str) -> None:
        """Draw a line and fill the area below it."""
        if len(x):
            base = f"{self.y.start:.1f}"
            ends = f"{float(self.x(x[0])):.1f},{base}", f"{float(self.x(x[-1])):.1f},{base}"
            points = f"{ends[0]} {line_points(self.x(x), self.y(y))} {ends[1]}"
            self.parts.append(f'<polygon class="area {css}" points="{points}"/>')
            self.line(x, y, css)

    def steps(self, x: Array, y: Array, css: str) -> None:
        """Draw a step line, which is interrupted where a value is nan."""
        path, pen_down = [], False
        for a, b in zip(self.x(x).tolist(), self.y(y).tolist(), strict=True):
            if math.isnan(b):
                path += [f"H{a:.1f}"] * pen_down
                pen_down = False
                continue
            path.append(f"H{a:.1f}V{b:.1f}" if pen_down else f"M{a:.1f},{b:.1f}")
            pen_down = True
        if path:
            self.parts.append(f'<path class="line {css}" d="{"".join(path)}"/>')

    def ribbon(self, x: Array, low: Array, high: Array, css: str) -> None:
        """Fill the area between two step lines."""
        path = []
        left, bottom, top = (v.tolist() for v in (self.x(x), self.y(low), self.y(high)))
        for i in range(len(left) - 1):
            if not math.isnan(bottom[i]):
                right = f"H{left[i + 1]:.1f}V{top[i]:.1f}H{left[i]:.1f}z"
                path.append(f"M{left[i]:.1f},{bottom[i]:.1f}{right}")
        if path:
            self.parts.append(f'<path class="area {css}" d="{"".join(path)}"/>')

    def cells(self, x: Array, y: Array, values: Array, css: str) -> None:
        """Draw shades: `values[i, j]` in 0 … 1 from `x[j]` to `x[j + 1]`, `y[i]` to `y[i + 1]`."""
        shades = np.ceil(np.nan_to_num(np.clip(values, 0, 1)) * SHADES).astype(int)
        left, low = self.x(x), self.y(y)
        for shade in range(1, SHADES + 1):
            path = []
            for i, row in enumerate(shades):
                # One rectangle for adjacent cells with the same shade.
                inside = np.flatnonzero(np.diff(np.concatenate(([0], row == shade, [0]))))
                for a, b in zip(inside[::2].tolist(), inside[1::2].tolist(), strict=True):
                    width = left[b] - left[a]
                    height = low[i + 1] - low[i]
                    path.append(
                        f"M{left[a]:.1f},{low[i]:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
                    )
            if path:
                opacity = f'opacity="{shade / SHADES:.2f}"'
                self.parts.append(f'<path class="cell {css}" {opacity} d="{"".join(path)}"/>')

    def points(self, x: Array, y: Array, css: str, up: bool) -> None:
        """Draw small triangles, pointing up or down, as one path."""
        dy = -3.2 if up else 3.2
        path = "".join(
            f"M{a - 2.8:.1f},{b - dy / 2:.1f}h5.6l-2.8,{dy}z"
            for a, b in zip(self.x(x).tolist(), self.y(y).tolist(), strict=True)
        )
        self.parts.append(f'<path class="mark {css}" d="{path}"/>')

    def span(self, begin: float, end: float, css: str, least: float = 1.5) -> None:
        """Shade an interval of the x axis over the full height, at least `least` pixels wide."""
        left, right = float(self.x(begin)), float(self.x(end))
        css += " thin" if right - left < 2 * least else ""
        box = f'x="{left:.1f}" y="{self.y.end:.1f}" width="{max(least, right - left):.1f}"'
        height = f'height="{self.y.start - self.y.end:.1f}"'
        self.parts.append(f'<rect class="{css}" {box} {height}/>')

    def band(self, begin: float, end: float, css: str) -> None:
        """Shade an interval of the x axis, with a line at its start."""
        left, right = float(self.x(begin)), float(self.x(end))
        top, height = self.y.end, self.y.start - self.y.end
        box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect class="{css}" {box}/>')
        self.parts.append(
            f'<line class="kill" x1="{left:.1f}" x2="{left:.1f}" y1="{top}" y2="{self.y.start}"/>'
        )

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        """Draw text at a pixel position."""
        self.parts.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )

    def axes(
        self,
        y_label: Callable[[float], str],
        x_ticks: Iterable[tuple[float, str]] = (),
        y_ticks: Sequence[float] | None = None,
    ) -> str:
        """Return grid and labels, to be drawn below everything else."""
        out = []
        for tick in self.y.ticks(4) if y_ticks is None else y_ticks:
            y = float(self.y(tick))
            ends = f'x1="{self.x.start}" x2="{self.x.end}" y1="{y:.1f}" y2="{y:.1f}"'
            out.append(f'<line class="grid" {ends}/>')
            out.append(
                f'<text class="tick" x="{self.x.start - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{html.escape(y_label(tick))}</text>"
            )
        for tick, label in x_ticks:
            x, anchor = float(self.x(tick)), "middle"
            if x + 3.4 * len(label) > self.x.end + 15:  # it would be clipped
                x, anchor = min(x + 3.4 * len(label), self.x.end + 14), "end"
            out.append(
                f'<text class="tick" x="{x:.1f}" y="{self.y.start + 18:.1f}" '
                f'text-anchor="{anchor}">{html.escape(label)}</text>'
            )
        if self.title:
            out.append(
                f'<text class="panel" x="{self.x.start}" y="{self.y.end - 8:.1f}">'
                f"{html.escape(self.title)}</text>"
            )
        return "".join(out)


def figure(width: int, height: int, label: str, *parts: str) -> str:
    """Return an SVG that fills the width of the page; `label` describes it for screen readers."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )
