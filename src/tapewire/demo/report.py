"""The demo's HTML page: one file that fetches nothing, with a light and a dark theme."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from tapewire.demo import plots
from tapewire.demo.measure import Measures
from tapewire.demo.paths import SYMBOL
from tapewire.demo.pipeline import Computed
from tapewire.demo.spark_jobs import SAMPLE
from tapewire.demo.summary import headlines, joiner_found, seconds_read
from tapewire.page import cards, document, items, section, table, write_file
from tapewire.text import counted, duration

__all__ = ["page", "write_page"]


def write_page(
    directory: Path, result: dict[str, Any], measures: Measures, computed: Computed | None = None
) -> Path:
    """Write `index.html` into a directory, which is created, and return its path."""
    return write_file(directory / "index.html", page(result, measures, computed))


def page(result: dict[str, Any], measures: Measures, computed: Computed | None = None) -> str:
    """The HTML of the page."""
    recoveries = result["recoveries"]
    names = list(result["strategies"])
    hop_keys = [(hop.name, f"c{i}") for i, hop in enumerate(measures.hops)]
    market_keys = [("trades", "c0"), *((f"fills of {n}", f"c{i}") for i, n in enumerate(names, 1))]
    market = "All trades, and the strategies' own fills: ▲ bought, ▼ sold. Below: their positions."
    body = "".join(
        [
            "<header><h1>A trading system on Tapewire</h1>",
            f'<p class="lead">{html.escape("; ".join(headlines(result)[:2]))}</p></header>',
            _cards(result),
            section("Processes and queues", plots.topology(result), _TOPOLOGY),
            section("The market", plots.market(measures, recoveries), market, market_keys),
            section("Throughput", plots.throughput(measures, recoveries), _THROUGHPUT),
            section("Latency by percentile", plots.latencies(measures.hops), _LATENCY, hop_keys),
            _hops(result),
            "<h2>Recoveries</h2>",
            _recoveries(result),
            "<h2>Strategies and queues</h2>",
            f'<div class="pair">{_strategies(result)}{_queues(result)}</div>',
            "<h2>The archive</h2>",
            _archive(result["archive"]),
            "" if computed is None else _spark(result["spark"], computed),
            f"<h2>Comparisons, all equal</h2>{items(result['checks'])}",
            f"<footer>Session of {result['seconds']:.1f} s, seed {result['seed']}. ",
            "Written by <code>tapewire demo</code>.</footer>",
        ]
    )
    return document("Tapewire demo", body)


_TOPOLOGY = (
    "Every queue has one writer; the numbers are its records. "
    "Red: killed with kill -9 and started again."
)
_THROUGHPUT = "Red bands: from a kill to the end of the recovery."
_LATENCY = (
    "From append to append, by the times of the records: waking the reader, reading, deciding, "
    "writing. The time of a tick is that at which its input was appended to the WAL. Samples that "
    "a kill delayed are left out; the table counts them as interrupted."
)


def _cards(result: dict[str, Any]) -> str:
    total = result["hops"][-1]
    killed = result["recoveries"]
    recovered = [recovery["recovery_s"] or 0.0 for recovery in killed]
    pairs = [
        (f"{result['fills']:,}", "fills"),
        ("0", "lost"),
        ("0", "duplicated"),
        (f"{len(killed)}", "processes killed"),
        (duration(max(recovered) * 1e9), "longest time to read its logs"),
        (duration(total["p50_ns"] or float("nan")), "median tick to fill"),
    ]
    return cards(pairs)


def _hops(result: dict[str, Any]) -> str:
    keys = ("p50_ns", "p99_ns", "p999_ns", "max_ns")
    rows = [
        [
            hop["name"],
            *("–" if hop[key] is None else duration(hop[key]) for key in keys),
            f"{hop['samples']:,}",
            f"{hop['interrupted']:,}",
        ]
        for hop in result["hops"]
    ]
    return table(["hop", "p50", "p99", "p99.9", "max", "samples", "interrupted"], rows)


def _recoveries(result: dict[str, Any]) -> str:
    rows = [
        [
            recovery["victim"],
            f"{recovery['killed_at_s']:.2f} s",
            f"{recovery['down_s']:.2f} s",
            f"{recovery['back_after_s']:.2f} s",
            seconds_read(recovery),
            recovery["found"],
        ]
        for recovery in result["recoveries"]
    ]
    joiner = result["joiner"]
    took = duration(joiner["seconds"] * 1e9)
    rows.append(["late joiner", "–", "–", "–", took, joiner_found(joiner)])
    heads = ["process", "killed at", "down", "recovered in", "reading its logs", "found"]
    return f'<div class="found">{table(heads, rows)}</div>'


def _strategies(result: dict[str, Any]) -> str:
    rows = [
        [
            name,
            *(f"{own[key]:,}" for key in ("orders", "cancels", "fills")),
            f"{own['position']:+,}",
            f"{own['profit']:+,.0f}",
        ]
        for name, own in result["strategies"].items()
    ]
    return table(["strategy", "orders", "cancels", "fills", "position", "profit"], rows)


def _queues(result: dict[str, Any]) -> str:
    rows = [
        [q["name"], f"{q['records']:,}", f"{q['per_second']:,.0f}", f"{q['bytes'] / 1e3:,.0f} kB"]
        for q in result["queues"]
    ]
    return table(["queue", "records", "per second", "payload"], rows)


def _archive(kept: dict[str, Any]) -> str:
    days, logs = len(kept["days"]), len(kept["logs"])
    text = (
        f"A tap followed the market data and archived it: {kept['records']:,} records, "
        f"{kept['bytes'] / 1e6:,.1f} MB on disk, {counted(logs, 'log')} of {counted(days, 'day')}. "
        "Each record has its original sequence number and time."
    )
    rows = [
        [
            log["log"],
            log["date"],
            f"{log['first_seq']:,} … {log['last_seq']:,}",
            f"{log['bytes'] / 1e6:,.1f} MB",
            f"{log['gaps']:,}",
        ]
        for log in kept["logs"]
    ]
    return f"<p>{html.escape(text)}</p>{table(['log', 'day', 'records', 'on disk', 'gaps'], rows)}"


def _spark(facts: dict[str, Any], computed: Computed) -> str:
    rows = [
        [
            job["job"],
            f"{job['rows']:,}",
            f"{job['seconds']:.2f} s",
            f"{job['rows'] / job['seconds']:,.0f}" if job["seconds"] else "–",
            f"{len(job['findings']):,}",
        ]
        for job in facts["jobs"]
    ]
    links = ", ".join(
        f'<a href="{html.escape(name)}">{html.escape(title)}</a>'
        for title, name in facts["pages"].items()
    )
    start = f"Spark took {facts['start_seconds']:.1f} s to start. Reports of the jobs: "
    return "".join(
        [
            section(
                "Features by Spark",
                plots.features(computed),
                f"{SYMBOL}, one row every {SAMPLE}: {computed.rows:,} rows. {_FEATURES}",
            ),
            table(["job", "rows", "time", "rows per second", "findings"], rows),
            f"<p>{html.escape(start)}{links}.</p>",
        ]
    )


_FEATURES = (
    "Spark refined the archive into clean logs and computed the features from these; each equals "
    "that of one replay of the live queue, bit for bit."
)
