"""Records as plain values, kept by a model and expected from a reader."""

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
    """Index of the first entry whose highest time so far is at least `wanted`, or `len(times)`."""
    return next((i for i, time in enumerate(times) if time >= wanted), len(times))
