"""The findings of a day's measures, and the measures as rows of tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tapewire.quality.limits import QualityLimits
from tapewire.text import counted, duration

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.quality.measure import DayMeasures

__all__ = ["TABLES", "findings_of", "rows_of"]

_LONG, _TEXT = pa.int64(), pa.string()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


TABLES: dict[str, pa.Schema] = {
    "days": _schema(
        records=_LONG,
        book_events=_LONG,
        book_begin_ns=_LONG,
        book_ns=_LONG,
        **{
            f"{state}_{unit}": _LONG for state in ("crossed", "locked") for unit in ("events", "ns")
        },
        **{
            f"{state}_{unit}": _LONG
            for state in ("untrusted", "start")
            for unit in ("events", "ns")
        },
        auction_ns=_LONG,
        gaps=_LONG,
        snapshots_compared=_LONG,
        snapshots_differing=_LONG,
        snapshots_not_comparable=_LONG,
        damaged_places=_LONG,
        price_scale=pa.int32(),
        size_scale=pa.int32(),
    ),
    "clocks": _schema(
        stream=_TEXT,
        records=_LONG,
        timed=_LONG,
        early=_LONG,
        late=_LONG,
        behind=_LONG,
        worst_behind_ns=_LONG,
        least_ns=_LONG,
        p50_ns=_LONG,
        p99_ns=_LONG,
        greatest_ns=_LONG,
        drift_ns=_LONG,
    ),
    "clock_times": _schema(
        stream=_TEXT, timestamp_ns=_LONG, records=_LONG, least_ns=_LONG, p50_ns=_LONG, p99_ns=_LONG
    ),
    "spans": _schema(
        state=_TEXT, begin_ns=_LONG, end_ns=_LONG, events=_LONG, cause=_TEXT, worst=_LONG
    ),
    "snapshots": _schema(
        stream=_TEXT,
        seq=_LONG,
        timestamp_ns=_LONG,
        levels=_LONG,
        differing=_LONG,
        price=_LONG,
        venue_size=_LONG,
        book_size=_LONG,
    ),
    "gaps": _schema(
        stream=_TEXT,
        kind=_TEXT,
        first=_LONG,
        last=_LONG,
        seq=_LONG,
        timestamp_ns=_LONG,
        cause=_TEXT,
        action=_TEXT,
    ),
    "findings": _schema(kind=_TEXT, stream=_TEXT, count=_LONG, first_ns=_LONG, what=_TEXT),
}


def findings_of(day: DayMeasures, gaps: list[Gap], limits: QualityLimits) -> list[dict[str, Any]]:
    """The findings of a day, worst first; none if nothing is beyond the limits."""
    found: list[dict[str, Any]] = []

    def add(kind: str, stream: str, count: int, first_ns: int | None, what: str) -> None:
        if count:
            row = {"kind": kind, "stream": stream, "count": count, "first_ns": first_ns}
            found.append({**row, "what": what})

    for one in day.damage:
        add("damage", one.stream, 1, None, f"{counted(one.bytes, 'byte')} unreadable: {one.what}")
    missing = sum(min(gap.missing, 2**62) for gap in gaps)
    add(
        "gaps",
        gaps[0].stream if gaps else "",
        len(gaps),
        min((gap.timestamp_ns for gap in gaps), default=None),
        f"{counted(len(gaps), 'gap')}, {counted(missing, 'sequence number')} missing",
    )
    if day.book is not None:
        for state in ("untrusted", "crossed", "locked"):
            spans = [span for span in day.book.spans if span.state == state]
            events, ns = day.book.events_of[state], day.book.ns_of[state]
            share = ns / day.book.ns if day.book.ns else 0.0
            what = f"book {state} for {duration(ns)} ({share:.3%} of the time), "
            what += f"after {counted(events, 'event')}"
            first = min((span.begin_ns for span in spans), default=None)
            # Between records of the same time a book may be in any state.
            lasted = ns > 0 or state == "untrusted"
            add(state, "book", events if lasted else 0, first, what)
    if day.drift is not None:
        kept = day.drift.differences
        what = f"the book differs from {day.drift.differing:,} of {day.drift.compared:,} "
        what += "snapshots of the venue"
        if kept:
            what += f"; first in {counted(kept[0].differing, 'level')} at record {kept[0].seq}"
        first = kept[0].timestamp_ns if kept else None
        add("drift", kept[0].stream if kept else "", day.drift.differing, first, what)
    for stream, clock in day.clocks.items():
        flaws = clock.first_flaw_ns
        early, late = clock.least_ns or 0, clock.greatest_ns or 0
        what = f"{counted(clock.early, 'record')} of {stream} arrived before their exchange time, "
        add("early", stream, clock.early, flaws.get("early"), f"{what}by up to {duration(-early)}")
        what = f"{counted(clock.late, 'record')} of {stream} arrived more than "
        what += f"{duration(limits.late_ns)} after their exchange time, by up to {duration(late)}"
        add("late", stream, clock.late, flaws.get("late"), what)
        what = f"{counted(clock.behind, 'record')} of {stream} with a time before that of an "
        what += f"earlier record in the log, by up to {duration(clock.worst_behind_ns)}"
        add("behind", stream, clock.behind, flaws.get("behind"), what)
        if clock.drift_ns > limits.clock_drift_ns:
            what = f"the clocks of {stream} drift: the shortest delay differs by "
            add("clock-drift", stream, 1, None, f"{what}{duration(clock.drift_ns)} between hours")
    return found


def rows_of(
    day: DayMeasures, gaps: list[Gap], findings: list[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, without venue, date and symbol, which the directories have."""
    book, drift = day.book, day.drift
    counts: dict[str, int] = {}
    for state in ("crossed", "locked", "untrusted", "start"):
        counts[f"{state}_events"] = book.events_of[state] if book else 0
        counts[f"{state}_ns"] = book.ns_of[state] if book else 0
    days = {
        "records": day.records,
        "book_events": book.events if book else 0,
        "book_begin_ns": book.begin_ns if book else None,
        "book_ns": book.ns if book else 0,
        **counts,
        "auction_ns": book.ns_of["auction"] if book else 0,
        "gaps": len(gaps),
        "snapshots_compared": drift.compared if drift else 0,
        "snapshots_differing": drift.differing if drift else 0,
        "snapshots_not_comparable": drift.not_comparable if drift else 0,
        "damaged_places": len(day.damage),
        "price_scale": day.price_scale,
        "size_scale": day.size_scale,
    }
    clocks = [
        {
            "stream": stream,
            "records": clock.records,
            "timed": clock.timed,
            "early": clock.early,
            "late": clock.late,
            "behind": clock.behind,
            "worst_behind_ns": clock.worst_behind_ns,
            "least_ns": clock.least_ns,
            "p50_ns": clock.percentile(50),
            "p99_ns": clock.percentile(99),
            "greatest_ns": clock.greatest_ns,
            "drift_ns": clock.drift_ns,
        }
        for stream, clock in day.clocks.items()
    ]
    times = [
        {"stream": stream, **row} for stream, clock in day.clocks.items() for row in clock.by_time()
    ]
    names = TABLES["gaps"].names
    return {
        "days": [days],
        "clocks": clocks,
        "clock_times": times,
        "spans": [asdict(span) for span in book.spans] if book else [],
        "snapshots": [asdict(one) for one in drift.differences] if drift else [],
        "gaps": [{name: _fits(asdict(gap)[name]) for name in names} for gap in gaps],
        "findings": findings,
    }


def _fits(value: Any) -> Any:
    """The value, or None for a venue's number beyond 63 bits, which only the ledger has."""
    return None if isinstance(value, int) and value >= 2**63 else value
