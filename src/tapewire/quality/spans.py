"""The states of a book, event by event, and their durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["MAX_SPANS", "STATES", "BookSpans", "Span"]

Array = np.ndarray[Any, Any]
# "start": before the first book; "auction": prices may cross until it is matched.
STATES = ("fine", "one-sided", "locked", "crossed", "none", "auction")
FINE, ONE_SIDED, LOCKED, CROSSED, NONE, AUCTION = range(6)
MAX_SPANS = 10_000  # kept; of the others only events and time are counted


@dataclass(frozen=True)
class Span:
    """A span of time in which a book was in one state.

    Attributes:
        state: "locked", "crossed", "start", "untrusted" or "empty".
        begin_ns: Time of the event that began it.
        end_ns: Time of the event that ended it, or of the last event of the day.
        events: Number of events after which the book was in this state.
        cause: If untrusted: the book's reason.
        worst: If crossed: the largest excess of the bid over the ask, scaled.
    """

    state: str
    begin_ns: int
    end_ns: int
    events: int
    cause: str = ""
    worst: int = 0


class BookSpans:
    """Counts events and time by state, and keeps the spans that are not fine.

    Args:
        known: Whether the day starts with a book, from the day before.
    """

    def __init__(self, known: bool = False) -> None:
        self.events = 0
        self.spans: list[Span] = []
        self.events_of: Counter[str] = Counter()
        self.ns_of: Counter[str] = Counter()
        self.begin_ns: int | None = None
        self._known = known
        self._clock_ns = -(2**63)
        self._state = "fine"
        self._open: Span | None = None

    def add(self, tops: Array, seqs: Array, auction: Array, causes: Mapping[int, str]) -> None:
        """Add rows of `Book.tops`.

        Args:
            tops: The best prices after each event; zeros if there is no trusted book.
            seqs: Sequence numbers of the records.
            auction: Whether the venue is collecting orders.
            causes: By `seq` of a record: why the book is untrusted from there on.
        """
        if not len(tops):
            return
        times = np.maximum.accumulate(np.maximum(tops["timestamp_ns"], self._clock_ns))
        if self.begin_ns is None:
            self.begin_ns = self._clock_ns = int(times[0])
        self.events += len(tops)
        has_bid, has_ask = tops["bid_size"] > 0, tops["ask_size"] > 0
        over = tops["bid_price"] - tops["ask_price"]
        states = np.select(
            [~has_bid & ~has_ask, auction, ~(has_bid & has_ask), over > 0, over == 0],
            [NONE, AUCTION, ONE_SIDED, CROSSED, LOCKED],
            FINE,
        )
        starts = np.flatnonzero(np.diff(states, prepend=-1))
        ends = [*starts[1:].tolist(), len(states)]
        for start, end in zip(starts.tolist(), ends, strict=True):
            name = STATES[states[start]]
            cause = causes.get(int(seqs[start]), "")
            if name == "none":
                name = self._none(cause)
            else:
                self._known = True
            self._run(name, cause, int(times[start]), int(times[end - 1]), end - start)
            if name == "crossed" and self._open is not None:
                worst = max(self._open.worst, int(over[start:end].max()))
                self._open = replace(self._open, worst=worst)

    def _none(self, cause: str) -> str:
        if cause:
            return "untrusted"
        if not self._known:
            return "start"
        # Events after the first one keep its state.
        return self._state if self._state in ("untrusted", "start") else "empty"

    def _run(self, state: str, cause: str, begin_ns: int, last_ns: int, events: int) -> None:
        """Add events with the same state; the state before lasted up to the first of them."""
        self.ns_of[self._state] += begin_ns - self._clock_ns
        self.ns_of[state] += last_ns - begin_ns
        self.events_of[state] += events
        self._clock_ns = last_ns
        before = self._open
        if before is not None and before.state == state and not cause:
            self._open = replace(before, end_ns=last_ns, events=before.events + events)
            return
        if before is not None:
            self._keep(replace(before, end_ns=begin_ns))
        self._state = state
        watched = state not in ("fine", "one-sided", "auction")
        self._open = Span(state, begin_ns, last_ns, events, cause) if watched else None

    def _keep(self, span: Span) -> None:
        if len(self.spans) < MAX_SPANS:
            self.spans.append(span)

    def finish(self) -> None:
        """End the day."""
        if self._open is not None:
            self._keep(self._open)
            self._open = None

    @property
    def ns(self) -> int:
        """Nanoseconds from the first event to the last."""
        return 0 if self.begin_ns is None else self._clock_ns - self.begin_ns
