"""The quality report as an HTML page."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapewire.page import cards, count, document, legend, plots, section, table
from tapewire.page.picture import BookPicture
from tapewire.page.plots import PlotMark
from tapewire.text import counted, duration

if TYPE_CHECKING:
    from tapewire.quality import QualityLimits

__all__ = ["DayReport", "quality_page"]

Rows = list[dict[str, Any]]
_MIN_CLOCK_ROWS = 4  # rows of five minutes; fewer are not plotted
_MAX_LANES = 40
_MAX_ROWS = 200  # of a table on the page; the Parquet tables have all


@dataclass(frozen=True)
class DayReport:
    """The tables of one symbol's day, and a picture of its book if one is drawn."""

    venue: str
    symbol: str
    date: str
    facts: dict[str, Any]
    findings: Rows
    gaps: Rows
    spans: Rows
    clocks: Rows
    clock_times: Rows
    picture: BookPicture | None = None

    @property
    def name(self) -> str:
        """The name shown on the page."""
        return f"{self.symbol} · {self.venue} · {self.date}"

    def marks(self) -> list[PlotMark]:
        """Marks of the gaps, and of the spans in which the book was not fine."""
        marks = [_mark(span) for span in self.spans if _is_flaw(span)]
        return marks + [
            PlotMark(gap["timestamp_ns"], gap["timestamp_ns"])
            for gap in self.gaps
            if gap["timestamp_ns"]
        ]


def _mark(span: dict[str, Any]) -> PlotMark:
    css = "dim" if span["state"] == "start" else "flaw"
    return PlotMark(span["begin_ns"], span["end_ns"], css)


def _is_flaw(span: dict[str, Any]) -> bool:
    lasted = span["end_ns"] > span["begin_ns"]
    return span["state"] in ("start", "untrusted") or (span["state"] != "empty" and lasted)


def quality_page(
    days: Sequence[DayReport],
    source: str,
    limits: QualityLimits,
    *,
    failed: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the report as one HTML document.

    Args:
        days: The tables of each symbol's day.
        source: Where the logs are, as shown in the title.
        limits: The limits that the findings were measured against.
        failed: Days that could not be measured: their names, and why.
    """
    found = [(day, one) for day in days for one in day.findings]
    parts = [
        "<header><h1>Quality report</h1>",
        f'<p class="lead"><code>{html.escape(source)}</code></p></header>',
        _verdict(days, found, len(failed)),
        _cards(days),
    ]
    if failed:
        parts.append("<h2>Failed parts</h2>" + _text_table(["part", "reason"], failed))
    parts += [_findings(found), _lanes(days)]
    for day in days:
        if day.picture is not None:
            parts.append(_drawn(day))
    parts += [_gaps(days), _books(days), _clocks(days), _limits(limits)]
    parts.append("<footer>Written by <code>tapewire etl quality</code>.</footer>")
    return document("Quality report", "".join(parts))


def _when(time_ns: int | None) -> str:
    if not time_ns:
        return "–"
    seconds, rest = divmod(time_ns, 10**9)
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest // 10**6:03d}"


def _verdict(days: Sequence[DayReport], found: Sequence[Any], failed: int) -> str:
    with_any = sum(1 for day in days if day.findings)
    if not found and not failed and not _total(days, "records"):
        return '<p class="verdict bad">There are no records to measure.</p>'
    if not found and not failed:
        return '<p class="verdict">No findings: every day is within the limits.</p>'
    text = f"{counted(len(found), 'finding')} in {with_any:,} of {len(days):,} symbols' days."
    if failed:
        text += f" {counted(failed, 'part')} failed."
    return f'<p class="verdict bad">{html.escape(text)}</p>'


def _total(days: Sequence[DayReport], name: str) -> int:
    return sum(day.facts[name] for day in days)


def _cards(days: Sequence[DayReport]) -> str:
    ns = _total(days, "book_ns")
    known = ns - _total(days, "start_ns")
    crossed = _total(days, "crossed_events")
    compared, differing = _total(days, "snapshots_compared"), _total(days, "snapshots_differing")
    trusted = f"{1 - _total(days, 'untrusted_ns') / known:.4%}" if known else "–"
    never = "never" if _total(days, "book_events") else "–"
    return cards(
        [
            count(_total(days, "records"), "record"),
            count(len({(d.venue, d.symbol) for d in days}), "symbol"),
            count(_total(days, "gaps"), "gap"),
            (trusted.replace("100.0000%", "100%"), "of the time with a trusted book"),
            (duration(_total(days, "crossed_ns")) if crossed else never, "crossed"),
            (
                f"{compared - differing:,} of {compared:,}" if compared else "–",
                "venue snapshots equal the book",
            ),
        ]
    )


def _text_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    return f'<div class="text">{table(heads, rows)}</div>'


def _more(rows: Sequence[Any]) -> str:
    left = len(rows) - _MAX_ROWS
    return f"<p>… and {left:,} more in the tables.</p>" if left > 0 else ""


def _findings(found: Sequence[tuple[DayReport, dict[str, Any]]]) -> str:
    if not found:
        return ""
    rows = [
        [day.symbol, day.venue, day.date, _when(one["first_ns"]), one["what"]]
        for day, one in found[:_MAX_ROWS]
    ]
    heads = ["symbol", "venue", "day", "first at, UTC", "what"]
    return f"<h2>Findings</h2>{_text_table(heads, rows)}{_more(found)}"


def _lanes(days: Sequence[DayReport]) -> str:
    """The recorded times and their flaws, a lane for each symbol."""
    by_symbol: dict[str, list[DayReport]] = {}
    for day in days:
        if day.facts["book_events"]:
            by_symbol.setdefault(f"{day.symbol} · {day.venue}", []).append(day)
    if not by_symbol:
        return ""
    rows = []
    for name, own in sorted(by_symbol.items())[:_MAX_LANES]:
        marks = [mark for day in own for mark in day.marks()]
        rows.append((name, [_recorded(day) for day in own], marks))
    times = [time for _, recorded, _ in rows for span in recorded for time in span]
    begin, end = min(times), max(times)
    keys = [
        ("recorded", "c1"),
        ("gap, untrusted, crossed or locked", "flaw"),
        ("before the first snapshot", "dim"),
    ]
    text = "Each day of a symbol, from its first book event to its last, in UTC. Red: a flaw."
    if len(by_symbol) > _MAX_LANES:
        text += f" The first {_MAX_LANES} of {len(by_symbol):,} symbols are shown."
    return section("Over time", plots.flaws_over_time(rows, begin, end), text, keys)


def _recorded(day: DayReport) -> tuple[int, int]:
    begin: int = day.facts["book_begin_ns"]
    return begin, begin + day.facts["book_ns"]


def _drawn(day: DayReport) -> str:
    assert day.picture is not None
    marks = day.marks()
    keys = [("bids", "c1"), ("asks", "c2")]
    seen = {mark.css for mark in marks}
    keys += [("gap, untrusted, crossed or locked", "flaw")] * ("flaw" in seen)
    keys += [("before the first snapshot", "dim")] * ("dim" in seen)
    streams: dict[str, Rows] = {}
    for row in day.clock_times:
        streams.setdefault(row["stream"], []).append(row)
    if max((len(rows) for rows in streams.values()), default=0) < _MIN_CLOCK_ROWS:
        streams = {}  # the table of clocks is enough
    parts = [
        f"<h2>{html.escape(day.name)}</h2>",
        "<p>The book over the day, in UTC. The stronger the colour, the larger the size.</p>",
        legend(keys),
        f"<figure>{plots.book(day.picture, marks)}</figure>",
        f"<figure>{plots.spread(day.picture, marks)}</figure>",
    ]
    if streams:
        label = f"Clocks of {day.name}"
        grey = [("least", "c0"), ("median; the band reaches to the 99th percentile", "c1")]
        parts += [legend(grey), f"<figure>{plots.clocks(streams, label)}</figure>"]
    return "".join(parts)


def _gaps(days: Sequence[DayReport]) -> str:
    rows = [(day, gap) for day in days for gap in day.gaps]
    if not rows:
        return ""
    lines = [
        [
            f"{day.symbol} · {day.venue}",
            _when(gap["timestamp_ns"]),
            gap["stream"],
            gap["kind"],
            "–" if gap["first"] is None else f"{gap['first']} … {gap['last']}",
            gap["cause"] + (f" ({gap['action']})" if gap["action"] else ""),
        ]
        for day, gap in rows[:_MAX_ROWS]
    ]
    heads = ["symbol", "found at, UTC", "stream", "kind", "missing", "cause"]
    return f"<h2>Gaps</h2>{_text_table(heads, lines)}{_more(rows)}"


def _share(part: int, total: int) -> str:
    return "–" if not part else f"{part / total:.4%}" if total else "0"


def _books(days: Sequence[DayReport]) -> str:
    own = [day for day in days if day.facts["book_events"]]
    if not own:
        return ""
    rows = []
    for day in own[:_MAX_ROWS]:
        facts = day.facts
        rows.append(
            [
                day.name,
                f"{facts['book_events']:,}",
                duration(facts["book_ns"]),
                _share(facts["untrusted_ns"], facts["book_ns"]),
                _share(facts["crossed_events"], facts["book_events"]),
                _share(facts["crossed_ns"], facts["book_ns"]),
                _share(facts["locked_ns"], facts["book_ns"]),
                f"{facts['snapshots_differing']:,} of {facts['snapshots_compared']:,}",
            ]
        )
    heads = ["book", "events", "time", "untrusted", "crossed, events", "crossed, time"]
    heads += ["locked, time", "snapshots that differ"]
    return f"<h2>Books</h2>{table(heads, rows)}{_more(own)}"


def _clocks(days: Sequence[DayReport]) -> str:
    own = [(day, clock) for day in days for clock in day.clocks]
    if not own:
        return ""

    def time(value: int | None) -> str:
        return "–" if value is None else duration(value)

    rows = [
        [
            f"{day.name} · {clock['stream']}",
            f"{clock['records']:,}",
            *(time(clock[key]) for key in ("least_ns", "p50_ns", "p99_ns", "greatest_ns")),
            *(f"{clock[key]:,}" for key in ("early", "late", "behind")),
        ]
        for day, clock in own[:_MAX_ROWS]
    ]
    heads = ["stream", "records", "least", "median", "p99", "greatest", "early", "late", "behind"]
    text = (
        "Receive time minus exchange time. Negative: the record arrived before its exchange time, "
        "so the clocks disagree. Behind: records with a time before that of an earlier record in "
        "the log."
    )
    return f"<h2>Clocks</h2><p>{text}</p>{table(heads, rows)}{_more(own)}"


def _limits(limits: QualityLimits) -> str:
    text = (
        f"Late: more than {duration(limits.late_ns)} after the exchange time. Early: more than "
        f"{duration(limits.early_ns)} before it. Behind: more than {duration(limits.behind_ns)} "
        "before the time of an earlier record. Clock drift: more than "
        f"{duration(limits.clock_drift_ns)} between the shortest delays of two hours. "
        f"Levels compared of each venue snapshot: {limits.levels}."
    )
    return f"<h2>Limits</h2><p>{html.escape(text)}</p>"
