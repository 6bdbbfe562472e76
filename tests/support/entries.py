"""Records as plain values: what a model keeps and what a reader must give back."""

from typing import NamedTuple

BASE_NS = 1_700_000_000_000_000_000


class Entry(NamedTuple):
    seq: int
    timestamp_ns: int
    type_id: int
    flags: int
    payload: bytes


def entry(record):
    return Entry(
        record.seq, record.timestamp_ns, record.type_id, record.flags, bytes(record.payload)
    )


def entries(records):
    return [entry(record) for record in records]


def payloads(records):
    return [bytes(record.payload) for record in records]


def seqs(records):
    return [record.seq for record in records]


def first_at_or_after(times, wanted):
    """Index of the first entry at which the tape had reached `wanted`; `len(times)` when never."""
    return next((i for i, time in enumerate(times) if time >= wanted), len(times))
