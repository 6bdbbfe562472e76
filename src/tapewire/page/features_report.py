"""The page of the job `features`."""

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

_MOST_ROWS = 200  # of a table on the page
_MOST_STRIPS = 12  # of features of a day


@dataclass(frozen=True)
class FeatureFacts:
    """What was written of one symbol's day."""

    venue: str
    symbol: str
    date: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class DayFeatures:
    """What is drawn of one.

    Attributes:
        name: For people.
        rows: How many there are.
        series: The features, thinned.
        known: Of each feature, which share of the rows has a value.
        picture: Its book, or None.
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
    """The whole page."""
    dates = sorted({fact.date for fact in facts})
    parts = [
        "<header><h1>Features of the tape</h1>",
        f'<p class="lead"><code>{html.escape(source)}</code></p></header>',
        cards(
            [
                count(sum(fact.rows for fact in facts), "row"),
                count(len(names), "feature"),
                count(len({(f.venue, f.symbol) for f in facts}), "symbol"),
                (f"{len(dates):,}", f"day: {dates[0]}" if len(dates) == 1 else "days"),
                (sample, "a row for each" if sample in ("event", "trade") else "between rows"),
                (bytes_text(sum(fact.bytes for fact in facts)), "of Parquet"),
            ]
        ),
    ]
    parts += [_day(day) for day in days]
    parts += [_computed(names, days), _written(facts)]
    parts.append("<footer>Written by <code>tapewire etl features</code>.</footer>")
    return document("Features of the tape", "".join(parts))


def _day(day: DayFeatures) -> str:
    parts = [f"<h2>{html.escape(day.name)}</h2>"]
    if day.picture is not None:
        parts += [
            "<p>The book over the day, in UTC: the stronger, the more rests at a price.</p>",
            legend([("bids", "c1"), ("asks", "c2")]),
            f"<figure>{plots.book(day.picture)}</figure>",
            f"<figure>{plots.spread(day.picture)}</figure>",
        ]
    series = [one for one in day.series if day.known[one.name] > 0]
    if series:
        text = "Each feature over the day, in UTC: a line of means, in a band of their ranges."
        label = f"Features of {day.name}"
        drawn = plots.features(series[:_MOST_STRIPS], label)
        parts += [f"<p>{text}</p><figure>{drawn}</figure>"]
    if len(series) > _MOST_STRIPS:
        parts.append(f"<p>… and {len(series) - _MOST_STRIPS} more in the table.</p>")
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
    heads = ["feature", "what it is", "unit", "rows with a value"]
    return f'<h2>What was computed</h2><div class="words">{table(heads, rows)}</div>'


def _is_of(name: str, pattern: str) -> bool:
    """Whether a name is one of a pattern: imbalance5 of imbalanceN, vwap_1s of vwap_SPAN."""
    text = re.escape(pattern).replace("SPAN", r"\d+\w+")
    return re.fullmatch(re.sub(r"N$", r"\\d+", text), name) is not None


def _written(facts: Sequence[FeatureFacts]) -> str:
    rows = [
        [f"{f.symbol} · {f.venue}", f.date, f"{f.rows:,}", bytes_text(f.bytes)]
        for f in facts[:_MOST_ROWS]
    ]
    left = len(facts) - _MOST_ROWS
    more = f"<p>… and {left:,} more.</p>" if left > 0 else ""
    return f"<h2>What was written</h2>{table(['symbol', 'day', 'rows', 'size'], rows)}{more}"
