"""`tapewire inspect LOG`: the state of a queue, its writer, its readers and its gaps."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.ledger import ledger_fields, show_ledger
from tapewire.cli.output import Exit, JsonOption, answer, console, say
from tapewire.cli.terminal_text import print_columns
from tapewire.cli.times import iso
from tapewire.text import bytes_text, count_text, time_text

if TYPE_CHECKING:
    from tapewire.queue import QueueStatus, ReaderStatus, WriterState

__all__ = ["inspect", "reader_state", "show_readers"]

# A writer's heartbeat comes every 100 ms, a reader's every second: a shorter watch proves nothing.
_WRITER_BEAT_SECONDS = 0.3
_READER_BEAT_SECONDS = 1.5


def inspect(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a queue.")],
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.1,
            max=86400,
            help="Watch for this long, to find processes that hang (their heartbeat does not "
            "change): at least 0.3 s for the writer, 1.5 s for readers.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of a queue: its records, its writer, and the lag of each reader.

    Also lists the gaps in the log. Changes nothing. Exits 1 if something could not be read.
    """
    from tapewire.book.gaps import GapLedger
    from tapewire.queue import QueueWatch

    queue = QueueWatch(log)
    before = seen = queue.look()
    if watch is not None:
        time.sleep(watch)
        seen = queue.look()
    states = {reader.name: reader.heartbeat_ns for reader in before.readers}
    writer = _writer_state(seen.writer, before.writer, watch)
    readers = {
        reader.name: reader_state(reader, states.get(reader.name), watch) for reader in seen.readers
    }
    ledger = GapLedger(log).scan()

    def show() -> None:
        _show(seen, writer, readers)
        show_ledger(ledger)

    answer(
        {**_to_dict(seen, writer, readers, watch), **ledger_fields(ledger)},
        as_json,
        show,
    )
    if seen.problems or ledger.damaged_count:
        raise typer.Exit(int(Exit.FINDINGS))


def _writer_state(now: WriterState, before: WriterState, watched: float | None) -> str:
    if not now.alive:
        return "killed" if now.killed else "closed"
    still = watched is not None and watched >= _WRITER_BEAT_SECONDS
    return "stale" if still and now.heartbeat_ns == before.heartbeat_ns else "alive"


def reader_state(reader: ReaderStatus, heartbeat_ns: int | None, watched: float | None) -> str:
    """One of "alive", "stale" (holds its name, but its heartbeat does not change), "stopped"."""
    if not reader.alive:
        return "stopped"
    still = watched is not None and watched >= _READER_BEAT_SECONDS
    return "stale" if still and reader.heartbeat_ns == heartbeat_ns else "alive"


def _to_dict(
    seen: QueueStatus, writer: str, readers: dict[str, str], watched: float | None
) -> dict[str, Any]:
    fields = {"kind": "queue", **seen.to_dict(), "watched_seconds": watched}
    fields["writer"]["state"] = writer
    for reader in fields["readers"]:
        reader["state"] = readers[reader["name"]]
    return fields


def _show(seen: QueueStatus, writer: str, readers: dict[str, str]) -> None:
    def line(what: str, text: str) -> None:
        say(f"{what:<10}{text}")

    line("queue", seen.path)
    kind = "sparse" if seen.sparse else "contiguous"
    line(
        "format",
        f"version {seen.version}, segments of {bytes_text(seen.segment_bytes)}, "
        f"sequence numbers from {seen.first_seq}, {kind}",
    )
    if seen.last_seq is None or seen.last_timestamp_ns is None:
        line("records", "none")
    else:
        count = "" if seen.records is None else f"{count_text(seen.records)}: "
        line(
            "records",
            f"{count}{count_text(seen.first_available_seq)} … {count_text(seen.last_seq)}",
        )
        line("last at", iso(seen.last_timestamp_ns))
    line("segments", f"{_segments(seen)}, {bytes_text(seen.disk_bytes)} on disk")
    line("end", f"segment {seen.end_segment}, offset {seen.end_offset:,}")
    line("writer", _writer_text(seen, writer))
    if seen.sync_errno:
        line("sync", f"failed: {os.strerror(seen.sync_errno)}; see `tapewire doctor`")
    if seen.ready or seen.lease:
        lease = "" if seen.lease is None else f" lease {seen.lease}"
        line("bus", f"{'READY' if seen.ready else 'not READY'}{lease}")
    for title, paths in (("temporary", seen.temporary_files), ("damaged", seen.damaged_copies)):
        if paths:
            line(title, ", ".join(Path(path).name for path in paths))
    if seen.readers:
        console.print()
        show_readers(seen.readers, readers)
    else:
        line("readers", "none")
    for problem in seen.problems:
        line("problem", problem)


def _segments(seen: QueueStatus) -> str:
    if not seen.segments:
        return "none"
    sealed = sum(segment.sealed for segment in seen.segments)
    span = f"{seen.segments[0].id} … {seen.segments[-1].id}"
    return f"{len(seen.segments)} ({span}), {sealed} sealed"


def _writer_text(seen: QueueStatus, state: str) -> str:
    writer = seen.writer
    if writer.epoch == 0:
        return "none yet"
    who = "" if writer.pid is None else f", pid {writer.pid}"
    at = f"at segment {seen.current_segment}, offset {seen.write_offset:,}"
    beat = f"heartbeat {time_text(writer.heartbeat_age)} ago"
    return f"{state}{who}, epoch {writer.epoch}, {beat}, {at}"


def show_readers(readers: tuple[ReaderStatus, ...], states: dict[str, str]) -> None:
    """Print a table of readers with their lags."""
    print_columns(
        console,
        ("READER", "STATE", "NEXT", "RECORDS", "BYTES", "SEGS", "TIME", "HEARTBEAT"),
        [
            (
                reader.name,
                states[reader.name] + (", pinned" if reader.pinned else ""),
                count_text(reader.next_seq),
                count_text(reader.lag_records),
                bytes_text(reader.lag_bytes),
                count_text(reader.lag_segments),
                time_text(reader.lag_seconds),
                time_text(reader.heartbeat_age),
            )
            for reader in readers
        ],
        right=(2, 3, 4, 5, 6, 7),
    )
