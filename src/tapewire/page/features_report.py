"""The report of the job `features`."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tapewire.page import cards, count, document, legend, plots, table
from tapewire.page.picture import BookPicture
from tapewire.page.plots import Series
from tapewire.replay import describe_features
from tapewire.text import bytes_text

__all__ = ["DayFeatures", "FeatureFacts", "features_page"]

_MOST_ROWS = 200  # of a table
_MOST_STRIPS = 12  # feature plots of a day


@dataclass(frozen=True)
class FeatureFacts:
    """What was written for one symbol's day."""

    venue: str
    symbol: str
    date: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class DayFeatures:
    """The plots of one symbol's day.

    Attributes:
        name: Title.
        rows: Number of rows.
        series: The features, downsampled.
        known: For each feature, the share of rows with a value.
        picture: The book, or None.
    """

    name: str
    rows: int
    series: Sequence[Series]
    known: Mapping[str, float]
    picture: BookPicture | None


def features_page(
    facts: Sequence[FeatureFacts],
    days: Sequence[DayFeatures],
    names: Sequence[str],
    sample: str,
    source: str,
) -> str:
    """Return the page."""
    dates = sorted({fact.date for fact in facts})
    parts = [
        "<header><h1>Features</h1>",
        f'<p class="lead"><code>{html.escape(source)}</code></p></header>',
        cards(
            [
                count(sum(fact.rows for fact in facts), "row"),
                count(len(names), "feature"),
                count(len({(f.venue, f.symbol) for f in facts}), "symbol"),
                (f"{len(dates):,}", f"day: {dates[0]}" if len(dates) == 1 else "days"),
                (sample, "one row each" if sample in ("event", "trade") else "between rows"),
                (bytes_text(sum(fact.bytes for fact in facts)), "of Parquet"),
            ]
        ),
    ]
    parts += [_day(day) for day in days]
    parts += [_computed(names, days), _written(facts)]
    parts.append("<footer>Written by <code>tapewire etl features</code>.</footer>")
    return document("Features", "".join(parts))


def _day(day: DayFeatures) -> str:
    parts = [f"<h2>{html.escape(day.name)}</h2>"]
    if day.picture is not None:
        parts += [
            "<p>The book over the day, in UTC. A darker shade is a greater size at a price.</p>",
            legend([("bids", "c1"), ("asks", "c2")]),
            f"<figure>{plots.book(day.picture)}</figure>",
            f"<figure>{plots.spread(day.picture)}</figure>",
        ]
    series = [one for one in day.series if day.known[one.name] > 0]
    if series:
        text = "The features over the day, in UTC: mean (line) and range (band)."
        label = f"Features of {day.name}"
        drawn = plots.features(series[:_MOST_STRIPS], label)
        parts += [f"<p>{text}</p><figure>{drawn}</figure>"]
    if len(series) > _MOST_STRIPS:
        parts.append(f"<p>{len(series) - _MOST_STRIPS} more features are in the table.</p>")
    return "".join(parts)


def _computed(names: Sequence[str], days: Sequence[DayFeatures]) -> str:
    infos = describe_features()
    rows = []
    for name in names:
        pattern = next((i for i in infos if _is_of(name, i.name)), None)
        shares = [day.known[name] for day in days if day.rows]
        rows.append(
            [
                name,
                pattern.meaning if pattern else "",
                pattern.unit if pattern else "",
                " … ".join(dict.fromkeys((f"{min(shares):.1%}", f"{max(shares):.1%}")))
                if shares
                else "–",
            ]
        )
    heads = ["feature", "meaning", "unit", "rows with a value"]
    return f'<h2>Features computed</h2><div class="words">{table(heads, rows)}</div>'


def _is_of(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern: imbalance5 matches imbalanceN, vwap_1s vwap_SPAN."""
    text = re.escape(pattern).replace("SPAN", r"\d+\w+")
    return re.fullmatch(re.sub(r"N$", r"\\d+", text), name) is not None


def _written(facts: Sequence[FeatureFacts]) -> str:
    rows = [
        [f"{f.symbol} · {f.venue}", f.date, f"{f.rows:,}", bytes_text(f.bytes)]
        for f in facts[:_MOST_ROWS]
    ]
    left = len(facts) - _MOST_ROWS
    more = f"<p>{left:,} more rows are not shown.</p>" if left > 0 else ""
    return f"<h2>Tables written</h2>{table(['symbol', 'day', 'rows', 'size'], rows)}{more}"
