"""The gap ledger of a log, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tapewire.cli.output import console, say
from tapewire.cli.text import count_text, print_columns
from tapewire.cli.times import iso

if TYPE_CHECKING:
    from tapewire.book.gaps import LedgerScan

__all__ = ["ledger_fields", "show_ledger"]


def ledger_fields(ledger: LedgerScan) -> dict[str, Any]:
    """The ledger as members of a JSON answer."""
    return {
        "gaps": [asdict(gap) for gap in ledger.gaps],
        "ledger_damage": [damaged._asdict() for damaged in ledger.damaged],
        "ledger_damage_count": ledger.damaged_count,
    }


def show_ledger(ledger: LedgerScan) -> None:
    """A table of gaps, and the lines that are damaged; nothing without either."""
    if ledger.gaps:
        console.print()
        print_columns(
            console,
            ("GAP", "OF", "FIRST", "LAST", "AT RECORD", "TIME", "ACTION", "CAUSE"),
            [
                (
                    gap.kind,
                    f"{gap.venue}:{gap.symbol}" if gap.symbol else "log",
                    count_text(gap.first),
                    count_text(gap.last),
                    count_text(gap.seq),
                    iso(gap.timestamp_ns),
                    gap.action,
                    gap.cause,
                )
                for gap in ledger.gaps
            ],
            right=(2, 3, 4),
        )
    for line, why in ledger.damaged:
        say(f"{'problem':<10}gaps.jsonl, line {line}: {why}")
    more = ledger.damaged_count - len(ledger.damaged)
    if more:
        say(f"{'problem':<10}gaps.jsonl: {count_text(more)} more damaged lines")
