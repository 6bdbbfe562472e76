"""Every kind of log, as the conformance suite drives it.

To add a kind, add an adapter to `KINDS`. `caps` is what its readers state in `reader.caps`;
`traits` is what the adapter knows beyond that. Cases ask for what they need with `@needs(...)` and
are not even collected for a kind that lacks it.
"""

import shutil

import pytest

import tapewire as tw
from tapewire import bus
from tests.support.entries import BASE_NS, Entry


class QueueLog:
    """A queue open for appending, with the list of everything appended to it."""

    def __init__(self, where, **options):
        self.where = where
        self.model = []
        self._writer = tw.open_publisher(where, **options)

    def append(self, payload=b"x", *, timestamp_ns=None, type_id=1, flags=0):
        seq = self._writer.next_seq
        time = BASE_NS + 1_000 * seq if timestamp_ns is None else timestamp_ns
        self._writer.append(type_id, payload, timestamp_ns=time, flags=flags)
        self.model.append(Entry(seq, time, type_id, flags, bytes(payload)))
        return seq

    def fill(self, count, size=40):
        """Append `count` records whose payloads differ in bytes and length."""
        for _ in range(count):
            number = len(self.model)
            self.append(b"%d:" % number + bytes(number % size), type_id=1 + number % 3)
        return self

    def close(self):
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class QueueKind:
    name = "queue"
    caps = frozenset(
        {"seq", "timestamp_ns", "type_id", "flags", "types"}
        | {"seek_seq", "seek_time", "wait", "skip_damaged", "live"}
    )
    traits = frozenset(
        {
            "empty_payload",  # a record may have no bytes
            "out_of_order_times",
            "mapped",  # payloads are views into mapped files
            "path",  # the log is a directory that `open_log` recognises
        }
    )

    def create(self, where):
        return QueueLog(where, segment_bytes=8192)  # rolls after a few dozen records

    def open_reader(self, where, types=None):
        return tw.open_log(where, types=types)

    def discard(self, where):
        """Remove the files of the log while readers have it open."""
        shutil.rmtree(where)


class FanInKind(QueueKind):
    """A fan-in of one queue: it can do what its source can, except seek by sequence number."""

    name = "fan-in"
    caps = (QueueKind.caps - {"seek_seq"}) | {"source"}
    traits = QueueKind.traits - {"path"}

    def open_reader(self, where, types=None):
        return bus.FanInReader({"only": super().open_reader(where, types)}, max_skew=0)


KINDS = [QueueKind(), FanInKind()]


def by_name(name):
    return next(kind for kind in KINDS if kind.name == name)


def needs(*wanted):
    """Run the case for every kind that has all of `wanted`."""
    able = [kind for kind in KINDS if set(wanted) <= kind.caps | kind.traits]
    assert able, f"no kind can do {wanted}"
    return pytest.mark.parametrize("kind", able, ids=[kind.name for kind in able])
