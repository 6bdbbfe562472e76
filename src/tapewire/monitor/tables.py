"""Rows of text for the terminal, for the live view and for `monitor --once`."""

from __future__ import annotations

from collections.abc import Sequence

from tapewire.monitor.snapshot import QueueView, ReaderView
from tapewire.text import bytes_text, short_count, time_text

__all__ = ["COLOURS", "SORTS", "lag_text", "queue_cells", "reader_cells", "sorted_queues"]

# Colours of rich, which every terminal theme has; the word means the same as the colour.
COLOURS = {
    "live": "green",
    "stale": "yellow",
    "dead": "red",
    "closed": "cyan",
    "unreadable": "red",
    "critical": "red",
    "warning": "yellow",
    "info": "cyan",
}

SORTS = ("name", "rate", "lag", "disk")


def sorted_queues(queues: Sequence[QueueView], by: str) -> list[QueueView]:
    """Sort by name, or by rate, lag or disk use with the highest first."""

    def key(queue: QueueView) -> tuple[float, str]:
        worst = queue.worst_lag
        value = {
            "name": 0.0,
            "rate": queue.records_per_second or 0.0,
            "lag": worst.lag_bytes if worst else -1,
            "disk": queue.disk_bytes,
        }[by]
        return (-value, queue.name)

    return sorted(queues, key=key)


def lag_text(reader: ReaderView | None) -> str:
    """Format the lag in records if known, else in bytes."""
    if reader is None:
        return "–"
    if reader.lag_records is None:
        return bytes_text(reader.lag_bytes)
    return short_count(reader.lag_records)


def queue_cells(queue: QueueView) -> tuple[str, ...]:
    """Return name, writer, records/s, bytes/s, last sequence number, worst lag, disk use."""
    return (
        queue.name,
        "unreadable" if queue.writer is None else queue.writer.state,
        short_count(queue.records_per_second),
        bytes_text(queue.bytes_per_second),
        "–" if queue.last_seq is None else str(queue.last_seq),
        lag_text(queue.worst_lag),
        bytes_text(queue.disk_bytes),
    )


def reader_cells(reader: ReaderView) -> tuple[str, ...]:
    """Return name, state, lag in records, bytes and time, records/s."""
    return (
        reader.name + (" (pinned)" if reader.pinned else ""),
        reader.state,
        short_count(reader.lag_records),
        bytes_text(reader.lag_bytes),
        time_text(reader.lag_seconds),
        short_count(reader.records_per_second),
    )
