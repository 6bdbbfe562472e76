"""The demo's page: one file, nothing fetched, light and dark."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from tapewire.demo import plots
from tapewire.demo.computing import SAMPLE
from tapewire.demo.measure import Measures
from tapewire.demo.pipeline import Computed
from tapewire.demo.places import SYMBOL
from tapewire.demo.summary import headlines, joiner_found, seconds_read
from tapewire.page import cards, document, items, section, table, write_file
from tapewire.text import duration

__all__ = ["page", "write_page"]


def write_page(
    folder: Path, result: dict[str, Any], measures: Measures, computed: Computed | None = None
) -> Path:
    """Write `index.html` into a folder, which is made; its path."""
    return write_file(folder / "index.html", page(result, measures, computed))


def page(result: dict[str, Any], measures: Measures, computed: Computed | None = None) -> str:
    """The whole page."""
    recoveries = result["recoveries"]
    names = list(result["strategies"])
    hop_keys = [(hop.name, f"c{i}") for i, hop in enumerate(measures.hops)]
    market_keys = [("trades", "c0"), *((f"fills of {n}", f"c{i}") for i, n in enumerate(names, 1))]
    market = "What the exchange traded, and what the strategies had of it. ▲ bought, ▼ sold."
    body = "".join(
        [
            "<header><h1>A trading system on one tape</h1>",
            f'<p class="lead">{html.escape("; ".join(headlines(result)[:2]))}</p></header>',
            _cards(result),
            section("Processes and queues", plots.topology(result), _TOPOLOGY),
            section("The market", plots.market(measures, recoveries), market, market_keys),
            section("Throughput", plots.throughput(measures, recoveries), _THROUGHPUT),
            section("Latency by percentile", plots.latencies(measures.hops), _LATENCY, hop_keys),
            _hops(result),
            "<h2>What was recovered</h2>",
            _recoveries(result),
            "<h2>Strategies and queues</h2>",
            f'<div class="pair">{_strategies(result)}{_queues(result)}</div>',
            "<h2>What was archived</h2>",
            _archive(result["archive"]),
            "" if computed is None else _spark(result["spark"], computed),
            f"<h2>What was compared</h2>{items(result['checks'])}",
            f"<footer>{result['seconds']:.1f} s, seed {result['seed']}. ",
            "Written by <code>tapewire demo</code>.</footer>",
        ]
    )
    return document("Tapewire demo", body)


_TOPOLOGY = (
    "Every queue has one writer; the numbers count its records. "
    "Red: killed with kill -9 and started again."
)
_THROUGHPUT = "Red bands: from a kill to the end of the recovery."
_LATENCY = (
    "From append to append, as the records' own times tell: waking the reader, reading, deciding, "
    "writing. A tick bears the time at which the WAL took its input. What a kill held up is left "
    "out here, and is in the table as interrupted."
)


def _cards(result: dict[str, Any]) -> str:
    whole = result["hops"][-1]
    killed = result["recoveries"]
    recovered = [recovery["recovery_s"] or 0.0 for recovery in killed]
    pairs = [
        (f"{result['fills']:,}", "fills"),
        ("0", "lost"),
        ("0", "twice"),
        (f"{len(killed)}", "processes killed"),
        (duration(max(recovered) * 1e9), "to read the tapes, the slowest"),
        (duration(whole["p50_ns"] or float("nan")), "median tick to fill"),
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
    heads = ["process", "killed at", "down", "back after start", "reading its tapes", "found there"]
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
    return table(["queue", "records", "a second", "payload"], rows)


def _archive(kept: dict[str, Any]) -> str:
    days, logs = len(kept["days"]), len(kept["logs"])
    text = (
        f"A tap followed the market data and kept it: {kept['records']:,} records, "
        f"{kept['bytes'] / 1e6:,.1f} MB on disk, {logs} {'log' if logs == 1 else 'logs'} of "
        f"{days} {'day' if days == 1 else 'days'}. Each record has the number and the time it had."
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


def _spark(told: dict[str, Any], computed: Computed) -> str:
    rows = [
        [
            job["job"],
            f"{job['rows']:,}",
            f"{job['seconds']:.2f} s",
            f"{job['rows'] / job['seconds']:,.0f}" if job["seconds"] else "–",
            f"{len(job['findings']):,}",
        ]
        for job in told["jobs"]
    ]
    links = ", ".join(
        f'<a href="{html.escape(name)}">{html.escape(title)}</a>'
        for title, name in told["pages"].items()
    )
    start = f"Spark took {told['start_seconds']:.1f} s to start. The jobs' own reports: "
    return "".join(
        [
            section(
                "What Spark computed",
                plots.features(computed),
                f"{SYMBOL}, a row every {SAMPLE}: {computed.rows:,} rows. {_FEATURES}",
            ),
            table(["job", "rows", "time", "rows a second", "findings"], rows),
            f"<p>{html.escape(start)}{links}.</p>",
        ]
    )


_FEATURES = (
    "The archive was refined into clean logs, and the features were computed from those by Spark's "
    "workers; each is, to the bit, that of one replay of the live queue."
)
