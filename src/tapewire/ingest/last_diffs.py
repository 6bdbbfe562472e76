"""Applies the diff that has the update id of a snapshot to the snapshot."""

from __future__ import annotations

from typing import Any

from tapewire.protocol.market import BookEvent

__all__ = ["LastDiffs"]

MOST = 256  # diffs: seconds of a busy market, longer than a snapshot's answer takes

_Levels = list[tuple[int, int]]


class LastDiffs:
    """The last diffs of one book.

    A reader that holds diffs until the snapshot comes drops those up to its id, so the diff with
    that id is applied to the snapshot before it is written. Sizes are absolute: it does no harm
    if the snapshot contains the diff already.

    Attributes:
        snapshot: The update id of the last snapshot.
    """

    def __init__(self) -> None:
        self.snapshot: int | None = None
        self._payloads: dict[int, bytes] = {}  # by the last update id, oldest first

    def add(self, last: int, payload: bytes) -> None:
        """Add a diff with its last update id."""
        self._payloads[last] = payload
        if len(self._payloads) > MOST:
            del self._payloads[next(iter(self._payloads))]

    def applied(self, last: int, bids: Any, asks: Any) -> tuple[_Levels, _Levels] | None:
        """Both sides of a snapshot after the diff with its id; None if there was none."""
        self.snapshot = last
        payload = self._payloads.get(last)
        if payload is None:
            return None
        diff = BookEvent.decode(payload)
        return _changed(bids, diff.bids, descending=True), _changed(asks, diff.asks)


def _changed(levels: Any, changes: Any, *, descending: bool = False) -> _Levels:
    sizes = dict(levels.tolist())
    sizes.update(changes.tolist())
    return sorted(((p, s) for p, s in sizes.items() if s), reverse=descending)
