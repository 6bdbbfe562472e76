"""The summary of a session: as plain values for JSON, and as text for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapewire.demo.audit import AuditResult
from tapewire.demo.measure import PERCENTILES, Hop, Measures
from tapewire.demo.pipeline import Archived, Computed
from tapewire.demo.run import Restart, SessionHistory
from tapewire.text import duration

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["headlines", "joiner_found", "seconds_read", "show", "summary"]


def summary(
    history: SessionHistory,
    books: AuditResult,
    measures: Measures,
    archived: Archived,
    computed: Computed | None = None,
) -> dict[str, Any]:
    """The result of a session, for JSON; docs/tutorial/trading-system.md names the keys."""
    joined = history.last("joiner", "joined").facts
    return {
        "agrees": True,  # otherwise the audit raises
        "seconds": round(measures.seconds, 3),
        "seed": history.options.seed,
        "capture": history.options.capture,
        "inputs": books.inputs,
        "checkpoints": books.checkpoints,
        "trades": books.trades,
        "fills": books.fills,
        "book_hash": books.book_hash,
        "strategies": {
            name: {
                "orders": own.orders,
                "cancels": own.cancels,
                "fills": own.fills,
                "position": own.position,
                "profit": measures.strategies[name].profit,
            }
            for name, own in books.strategies.items()
        },
        "hops": [_hop(hop) for hop in measures.hops],
        "queues": [
            {
                "name": rate.name,
                "records": rate.records,
                "bytes": rate.bytes,
                "per_second": round(rate.per_second, 1),
            }
            for rate in measures.rates
        ],
        "recoveries": [_recovery(restart, history) for restart in history.restarts],
        "snapshots": books.snapshots,
        "joiner": joined | {"from_start": books.from_start._asdict()},
        "archive": archived.to_dict(),
        "spark": None if computed is None else computed.to_dict(),
        "checks": [*books.checks, *archived.checks, *(computed.checks if computed else ())],
    }


def _hop(hop: Hop) -> dict[str, Any]:
    names = [f"p{p:g}_ns".replace(".", "") for p in PERCENTILES]
    values = [None if math.isnan(p) else int(p) for p in hop.percentiles()]
    return {
        "name": hop.name,
        "samples": len(hop.ns),
        "interrupted": len(hop.interrupted),
        **dict(zip(names, values, strict=True)),
        "max_ns": int(hop.max_ns) if len(hop.ns) else None,
    }


def _recovery(restart: Restart, history: SessionHistory) -> dict[str, Any]:
    seconds = restart.facts.get("seconds")
    return {
        "victim": restart.victim,
        "killed_at_s": round((restart.killed_ns - history.began_ns) / 1e9, 3),
        "down_s": round((restart.started_ns - restart.killed_ns) / 1e9, 3),
        "back_after_s": round((restart.recovered_ns - restart.started_ns) / 1e9, 3),
        "recovery_s": None if seconds is None else round(seconds, 6),
        "found": _found(restart, history),
    }


def _found(restart: Restart, history: SessionHistory) -> str:
    """What a process found in its logs when it recovered, in words."""
    facts = restart.facts
    if restart.victim == "exchange":
        checkpoint = facts["checkpoint"]
        since = "no checkpoint yet" if checkpoint is None else f"checkpoint {checkpoint:,}"
        return (
            f"{since}, {facts['replayed']:,} inputs replayed, "
            f"{facts['published']:,} missing records published"
        )
    if restart.victim == "router":
        last = ", ".join(f"{name} {seq:,}" for name, seq in sorted(facts["last_routed"].items()))
        again = history.last("router", "stopped").facts["skipped"]
        return f"continues after {last or 'no order'}; {again:,} read again, not sent again"
    if restart.victim == "snapshotter":
        return f"continues after snapshot {facts['before']:,}; its next is {facts['snapshot']:,}"
    return f"position {facts['position']:+,}, {facts['open_orders']:,} open orders"


def seconds_read(recovery: dict[str, Any]) -> str:
    """How long a process read its logs, as text."""
    seconds = recovery["recovery_s"]
    return "–" if seconds is None else duration(seconds * 1e9)


def joiner_found(joiner: dict[str, Any]) -> str:
    """What the late joiner found, in words."""
    start = joiner["from_start"]
    return (
        f"snapshot {joiner['snapshot']:,}, {joiner['replayed']:,} records after it; "
        f"from the start: {start['records']:,} in {duration(start['seconds'] * 1e9)}"
    )


def headlines(result: dict[str, Any]) -> list[str]:
    """The verdict in a few lines, each short enough for a terminal."""
    orders = sum(own["orders"] + own["cancels"] for own in result["strategies"].values())
    killed = ", ".join(recovery["victim"] for recovery in result["recoveries"])
    joiner = result["joiner"]
    start, replayed = joiner["from_start"], f"{joiner['replayed']:,} records"
    return [
        f"{result['fills']:,} fills: none lost, none duplicated",
        f"killed with kill -9 and recovered: {killed}",
        f"{orders:,} orders and cancels, {result['trades']:,} trades, {result['inputs']:,} inputs",
        "the late joiner's book at the close equals the exchange's and that of a replay",
        f"it replayed {replayed} after a snapshot, instead of {start['records']:,} from the start",
        f"{len(result['checks'])} comparisons of logs, record by record: all equal",
        f"{result['archive']['records']:,} records of market data archived during the session",
        *_spark_lines(result["spark"]),
    ]


def _spark_lines(computed: dict[str, Any] | None) -> list[str]:
    if computed is None:
        return []
    rows = computed["features"]["rows"]
    return [f"{rows:,} rows of features by Spark: equal to those of a replay, bit for bit"]


def show(console: Console, result: dict[str, Any]) -> None:
    """Print a result as text."""
    from rich.padding import Padding
    from rich.table import Table

    def table(title: str, first: str, *others: str) -> Table:
        made = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        made.add_column(first, no_wrap=True, style="cyan")
        for other in others:
            made.add_column(other, justify="right", no_wrap=True)
        return made

    hops = table("Latency, append to append", "hop", "p50", "p99", "p99.9", "max", "samples")
    for hop in result["hops"]:
        values = [hop[key] for key in ("p50_ns", "p99_ns", "p999_ns", "max_ns")]
        cells = ["–" if ns is None else duration(ns) for ns in values]
        hops.add_row(hop["name"], *cells, f"{hop['samples']:,}")
    queues = table("Queues", "queue", "records", "per second", "payload")
    for queue in result["queues"]:
        size = f"{queue['bytes'] / 1e3:,.0f} kB"
        queues.add_row(queue["name"], f"{queue['records']:,}", f"{queue['per_second']:,.0f}", size)
    strategies = table("Strategies", "strategy", "orders", "cancels", "fills", "position", "profit")
    for name, own in result["strategies"].items():
        counts = [f"{own[key]:,}" for key in ("orders", "cancels", "fills")]
        strategies.add_row(name, *counts, f"{own['position']:+,}", f"{own['profit']:+,.0f}")
    console.print()
    for line in headlines(result):
        console.print(f"[green]✓[/green] {line}")
    for made in (hops, queues, strategies):
        console.print(Padding(made, (1, 0, 0, 0)))
    recoveries = table("Recoveries", "process", "killed", "down", "back in", "logs read")
    recoveries.add_column("found", overflow="fold")
    for recovery in result["recoveries"]:
        times = [recovery[key] for key in ("killed_at_s", "down_s", "back_after_s")]
        cells = [f"{seconds:.2f} s" for seconds in times]
        read = seconds_read(recovery)
        recoveries.add_row(recovery["victim"], *cells, read, recovery["found"])
    joiner = result["joiner"]
    read = duration(joiner["seconds"] * 1e9)
    recoveries.add_row("late joiner", "–", "–", "–", read, joiner_found(joiner))
    console.print(Padding(recoveries, (1, 0, 1, 0)))
    delayed = max(hop["interrupted"] for hop in result["hops"])
    console.print(
        f"Samples that a kill delayed are left out of the latencies: at most {delayed:,} per hop."
    )
