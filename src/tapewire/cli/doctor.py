"""`tapewire doctor BUS`: check the queues of a bus, and report what to do."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import BusArgument
from tapewire.cli.output import Exit, JsonOption, answer, fail, say
from tapewire.errors import NotALog, TapewireError
from tapewire.text import counted

if TYPE_CHECKING:
    from tapewire.queue.checkup import CheckupRules, QueueFinding

__all__ = ["doctor"]

_CHECK_PERMISSIONS = "check its owner and permissions"


def doctor(
    bus: BusArgument,
    reader_ttl: Annotated[
        float,
        typer.Option(
            "--reader-ttl",
            metavar="SECONDS",
            min=0,
            help="A stopped reader is dead after it has been silent for this long.",
        ),
    ] = 0.0,
    max_lag_bytes: Annotated[
        int,
        typer.Option(
            "--max-lag-bytes",
            metavar="N",
            min=0,
            help="Report a reader that is more bytes than this behind.",
        ),
    ] = 10 << 30,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Print the fixes; with --yes, apply them.", show_default=False),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Apply the fixes of --fix.", show_default=False)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every queue for what killed processes leave; print one line per finding.

    Findings are failed syncs, stale locks, dead and lagging readers, temporary
    files, old segments that are not sealed, marks of processes that are gone,
    and what cannot be read. Notes are segments that no reader needs any more,
    and copies of damaged segments.

    Exits 1 if there are findings or, with --fix --yes, if any are left. A fix
    changes only what is certainly dead, and holds its lock meanwhile.
    """
    from tapewire.queue import find_queues
    from tapewire.queue.checkup import CheckupRules

    if yes and not fix:
        fail(Exit.USAGE, "--yes needs --fix")
    unlisted: list[OSError] = []
    queues = find_queues(bus, unlisted.append)
    if not (queues or unlisted):
        fail(Exit.NOT_FOUND, f"no queues below this directory: {bus}")
    rules = CheckupRules(reader_ttl=reader_ttl, max_lag_bytes=max_lag_bytes)
    unreadable = [_unlisted_directory(error) for error in unlisted]
    found, vanished = _examine_all(queues, rules)
    found += unreadable
    treated = [_treat(finding, act=yes) for finding in _once_a_kind(found)] if fix else []
    left = [*_examine_all(queues, rules)[0], *unreadable] if yes else found
    faults = [finding for finding in left if not finding.note]

    answer(
        {
            "bus": os.path.abspath(bus),
            "queues": len(queues) - vanished,
            "findings": [dataclasses.asdict(finding) for finding in found],
            "fixes": treated,
            "left": len(faults),
        },
        as_json,
        lambda: _show(bus, len(queues) - vanished, found, treated, len(faults), yes),
    )
    if faults:
        raise typer.Exit(int(Exit.FINDINGS))


def _unlisted_directory(error: OSError) -> QueueFinding:
    from tapewire.queue.checkup import QueueFinding

    message = f"cannot list the directory: {error.strerror}"
    return QueueFinding(str(error.filename), "problem", "", message, _CHECK_PERMISSIONS)


def _examine_all(queues: list[str], rules: CheckupRules) -> tuple[list[QueueFinding], int]:
    from tapewire.queue import status
    from tapewire.queue.checkup import QueueFinding, examine

    found, vanished = [], 0
    for queue in queues:
        try:
            found += examine(status(queue), rules)
        except (FileNotFoundError, NotALog):
            vanished += 1  # removed since it was listed, which is not a problem
        except (TapewireError, OSError) as error:  # one queue must not hide the others
            found.append(QueueFinding(queue, "problem", "", str(error), _CHECK_PERMISSIONS))
    return found, vanished


def _once_a_kind(found: list[QueueFinding]) -> list[QueueFinding]:
    """One finding for each fix: a fix repairs all temporary files, or all segments, of a queue."""
    together = {"temporary-file", "unsealed-segment"}
    chosen: dict[tuple[str, str, str], QueueFinding] = {}
    for finding in found:
        if finding.fixable:
            key = (finding.queue, finding.kind, "" if finding.kind in together else finding.subject)
            chosen.setdefault(key, finding)
    # Last, since opening the queue as a writer repairs the rest as well.
    return sorted(chosen.values(), key=lambda finding: finding.kind == "unsealed-segment")


def _treat(finding: QueueFinding, act: bool) -> dict[str, Any]:
    from tapewire.queue.checkup import apply_remedy

    treated = {"queue": finding.queue, "kind": finding.kind, "subject": finding.subject}
    if not act:
        return {**treated, "done": False, "actions": [_intention(finding)]}
    try:
        return {**treated, "done": True, "actions": apply_remedy(finding)}
    except (TapewireError, OSError) as error:
        return {**treated, "done": False, "actions": [f"failed: {error}"]}


def _intention(finding: QueueFinding) -> str:
    return {
        "dead-reader": f"forget reader '{finding.subject}' and its position",
        "stale-lock": "clear the killed writer's name from writer.lock",
        "temporary-file": "remove the temporary files",
        "unsealed-segment": "open the writer, which seals old segments, and close it",
        "stale-marks": f"remove {finding.subject}",
    }[finding.kind]


def _show(
    bus: Path,
    queues: int,
    found: list[QueueFinding],
    treated: list[dict[str, Any]],
    left: int,
    acted: bool,
) -> None:
    def name(queue: str) -> str:
        short = os.path.relpath(queue, os.path.abspath(bus))
        return os.path.basename(queue) if short == "." else short

    for finding in found:
        kind = f"note: {finding.kind}" if finding.note else finding.kind
        say(f"{name(finding.queue)}: {kind}: {finding.message}; {finding.remedy}")
    for each in treated:
        for action in each["actions"]:
            say(f"{name(each['queue'])}: {'' if acted else 'would '}{action}")
    if treated and not acted:
        say("nothing was changed; give --fix --yes to apply the fixes")
    state = counted(left, "finding") if left else "no findings"
    say(f"{counted(queues, 'queue')}: {state}{' left' if left and acted else ''}")
