"""The gap ledger of a log, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tapewire.cli.output import say
from tapewire.cli.times import iso
from tapewire.text import count_text

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap, LedgerScan

__all__ = ["gap_text", "ledger_fields", "show_ledger"]


def ledger_fields(ledger: LedgerScan) -> dict[str, Any]:
    """The ledger as members of a JSON answer."""
    return {
        "gaps": [asdict(gap) for gap in ledger.gaps],
        "ledger_damage": [damaged._asdict() for damaged in ledger.damaged],
        "ledger_damage_count": ledger.damaged_count,
    }


def gap_text(gap: Gap) -> str:
    """What is missing, and why. Numbers are written as the venue, or the log, writes them."""
    of = f"{gap.venue}:{gap.symbol}" if gap.symbol else "log"
    numbers = f"{gap.first} … {gap.last}" if gap.last else f"at record {gap.seq}"
    return f"{gap.kind} {of} {numbers}, {gap.cause}"


def show_ledger(ledger: LedgerScan) -> None:
    """Print the gaps, two lines each, and the damaged lines of the ledger."""
    for gap in ledger.gaps:
        say(f"{'gap':<10}{gap_text(gap)}")
        say(f"{'':<10}at record {count_text(gap.seq)}, {iso(gap.timestamp_ns)}: {gap.action}")
    for line, why in ledger.damaged:
        say(f"{'problem':<10}gaps.jsonl, line {line}: {why}")
    more = ledger.damaged_count - len(ledger.damaged)
    if more:
        say(f"{'problem':<10}gaps.jsonl: {count_text(more)} more damaged lines")
