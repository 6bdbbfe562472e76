"""`tapewire verify LOG`: check every checksum and every sequence number of a log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.output import Exit, JsonOption, answer, errors, say
from tapewire.text import bytes_text, count_text, time_text

if TYPE_CHECKING:
    from tapewire.archive import ArchiveVerdict
    from tapewire.queue.verification import DamagedPlace, Verdict

__all__ = ["exit_by", "say_speed", "verify"]


def verify(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A log of any kind: a path or an address.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Verify every checksum and every sequence number of a log. Changes nothing.

    Reports damaged places with the records lost there, gaps, and where sequence
    numbers start again (other implementations do that). A log that is being
    written is read up to the end that it had at the start.

    Exits 3 if the log is damaged or has a gap, 1 if only something that can be
    rebuilt (a seek index, the counters) is invalid.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from tapewire.queue.verification import Verification

    began = time.monotonic()
    with (
        Verification(log) as check,
        Progress(
            TextColumn("verifying"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        ) as progress,
    ):
        task = progress.add_task("", total=check.total_bytes)
        for done in check.run():
            progress.update(task, completed=done)
        verdict = check.verdict()
        seconds = time.monotonic() - began
    answer(_to_dict(verdict, seconds), as_json, lambda: _show(verdict))
    if not as_json:
        say_speed(verdict, seconds)
    exit_by(verdict)


def say_speed(verdict: Verdict | ArchiveVerdict, seconds: float) -> None:
    """Print the duration and rate on standard error."""
    rate = verdict.payload_bytes / seconds if seconds else 0.0
    say(f"in {time_text(seconds)}, {bytes_text(rate)}/s", errors)


def exit_by(verdict: Verdict | ArchiveVerdict) -> None:
    """End with the exit code of a verdict; return if there is nothing to report."""
    if not verdict.intact:
        raise typer.Exit(int(Exit.DAMAGED))
    if verdict.problems:
        raise typer.Exit(int(Exit.FINDINGS))


def _to_dict(verdict: Verdict, seconds: float) -> dict[str, Any]:
    return {
        "log": verdict.log,
        "kind": verdict.kind,
        "intact": verdict.intact,
        "complete": verdict.complete,
        "records": verdict.records,
        "payload_bytes": verdict.payload_bytes,
        "first_seq": verdict.first_seq,
        "last_seq": verdict.last_seq,
        "damage": [place.to_dict() for place in verdict.damage],
        "damaged_places": verdict.damaged_places,
        "gaps": [place.to_dict() for place in verdict.gaps],
        "gaps_found": verdict.gaps_found,
        "restarts": [
            {"record": at, "from_seq": before, "to_seq": after}
            for at, before, after in verdict.restarts
        ],
        "restarts_found": verdict.restarts_found,
        "retired": verdict.retired,
        "problems": verdict.problems,
        "seconds": seconds,
        "payload_bytes_per_second": verdict.payload_bytes / seconds if seconds else 0.0,
    }


def _show(verdict: Verdict) -> None:
    for place in verdict.damage:
        say(f"damage: {_where(place)}: {place.what}{_lost(place)}")
    _more("damaged places", verdict.damaged_places - len(verdict.damage))
    for place in verdict.gaps:
        say(f"gap: {_where(place)}: {place.what}")
    _more("gaps", verdict.gaps_found - len(verdict.gaps))
    for at, before, after in verdict.restarts:
        say(
            f"restart: sequence numbers start again after {count_text(at)} records: "
            f"{before} → {after}"
        )
    _more("restarts", verdict.restarts_found - len(verdict.restarts))
    if verdict.retired:
        say("note: retention removed segments before they were read; verified what is left")
    for problem in verdict.problems:
        say(f"problem: {problem}")
    span = (
        "" if verdict.first_seq is None else f", {verdict.first_seq:,} … {verdict.last_seq or 0:,}"
    )
    say(
        f"{verdict.kind} {Path(verdict.log).name or verdict.log}: "
        f"{count_text(verdict.records)} records{span}, "
        f"{bytes_text(verdict.payload_bytes)} of payload: {_judgement(verdict)}"
    )


def _judgement(verdict: Verdict) -> str:
    if verdict.intact:
        return "all checksums and sequence numbers are valid"
    parts = []
    for count, one, many in (
        (verdict.damaged_places, "damaged place", "damaged places"),
        (verdict.gaps_found, "gap", "gaps"),
    ):
        if count:
            parts.append(f"{count} {one if count == 1 else many}")
    if not verdict.complete:
        parts.append("the rest of the log was not read")
    return ", ".join(parts)


def _where(place: DamagedPlace) -> str:
    offset = "" if place.offset is None else f" at offset {place.offset:,}"
    return f"{place.file or 'log'}{offset}{f', {place.bytes:,} bytes' if place.bytes else ''}"


def _lost(place: DamagedPlace) -> str:
    if place.first_lost is None or place.last_lost is None or place.last_lost < place.first_lost:
        return ""
    if place.first_lost == place.last_lost:
        return f"; lost: record {place.first_lost}"
    return f"; lost: records {place.first_lost} … {place.last_lost}"


def _more(what: str, count: int) -> None:
    if count > 0:
        say(f"and {count:,} more {what}")
