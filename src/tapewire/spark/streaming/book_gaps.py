"""What the books of a log miss, found one micro-batch after the other.

A book notices what the venue's own numbers leave out, and to notice it must have followed them: so
the books of a log are kept between micro-batches, in the folder that the query names, as those of
the replayed views are. A state also knows what was found before it, so that a ledger which tells
the same later is not repeated. Checkpoints are hints here too: what is lost is built again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapewire.errors import CorruptMetadata
from tapewire.queue import status
from tapewire.replay._features import Plan, positions_in
from tapewire.replay.playback import gaps_of
from tapewire.replay.row_stream import RowStream
from tapewire.scan.gaps import WITHOUT_BOOKS, PathNames, event_of
from tapewire.scan.instruments import given_instruments
from tapewire.spark.streaming.checkpoints import CheckpointMark, Checkpoints
from tapewire.spark.streaming.replay_steps import ReplayStep, check_there, front

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["BookGaps", "has_books", "kept_from", "replayed_gaps"]

# Rows are of no interest here: few are made.
_SAMPLE = "1d"
_DIGEST = 8


def has_books(log: LogRef) -> bool:
    """Whether there may be books in a log."""
    return log.stream not in WITHOUT_BOOKS


@dataclass(frozen=True)
class BookGaps:
    """What was found by a step.

    Attributes:
        found: Gaps noticed at the records of this step.
        before: Of what was found by the steps before it, a digest each.
    """

    found: list[Gap]
    before: frozenset[bytes]

    def told_of(self, gap: Gap) -> bool:
        """Whether a step before this one has found it."""
        return _digest(gap) in self.before


def replayed_gaps(log: LogRef, start: int, end: int, options: ReadOptions) -> BookGaps:
    """What the books of a log miss at the records from `start` up to, and without, `end`.

    Raises:
        SegmentMissing: The state at `start` is lost, and what it was built from retired.
    """
    states = _states_of(options)
    state, before = _state_at(log, start, options, states)
    if end <= start:
        return BookGaps([], before)
    found, after = _replay(log, end, state, options)
    _save(states, log, end, before.union(map(_digest, found)), after)
    return BookGaps(found, before)


def kept_from(log: LogRef, committed: int, options: ReadOptions) -> int:
    """Number of the first record that is still needed once all before `committed` is."""
    kept = _states_of(options).prune(log.name, _mark(log, committed))
    return 0 if kept is None else min(kept.mark.logs[log.name], committed)


def _state_at(
    log: LogRef, place: int, options: ReadOptions, states: Checkpoints
) -> tuple[bytes | None, frozenset[bytes]]:
    """The books behind all records below `place`, and digests of what they had missed by then."""
    if place == 0:
        states.begin(log.name, {log.name: front(status(log.path))})
        return None, frozenset()
    mark = _mark(log, place)
    nearest = states.find(log.name, mark)
    state, known = (None, frozenset[bytes]()) if nearest is None else _split(nearest.state)
    if nearest is not None and nearest.mark == mark:
        return state, known
    places = states.began(log.name) if nearest is None else nearest.mark.logs
    step = ReplayStep(log.name, None, {log.name: log.path}, mark, mark)
    check_there(step, nearest, places, options)
    found, state = _replay(log, place, state, options)
    known = known.union(map(_digest, found))
    _save(states, log, place, known, state)
    return state, known


def _replay(
    log: LogRef, end: int, state: bytes | None, options: ReadOptions
) -> tuple[list[Gap], bytes]:
    """Replay up to `end`; return the gaps found and the state there."""
    with RowStream(
        {log.name: log.path},
        Plan((), _SAMPLE),
        venues=True,
        names=PathNames(log, given_instruments(options), [log.path]),
        seq_to={log.name: end},
        skip_damaged=True,
        state=state,
    ) as stream:
        stream.exhaust()
        return [gap for gap in gaps_of(stream.engine) if gap.kind != "record"], stream.save()


def _states_of(options: ReadOptions) -> Checkpoints:
    assert options.state is not None
    names = ("view", "seq_from", "time_from", "instruments", "reader")
    meaning = {name: getattr(options, name) for name in names}
    return Checkpoints(options.state, meaning, lambda state: positions_in(_split(state)[0]))


def _mark(log: LogRef, place: int) -> CheckpointMark:
    """A log is its own tape: its numbers are the time."""
    return CheckpointMark(place, {log.name: place})


def _save(
    states: Checkpoints, log: LogRef, place: int, known: frozenset[bytes], state: bytes
) -> None:
    head = len(known).to_bytes(_DIGEST, "little")
    states.save(log.name, _mark(log, place), head + b"".join(sorted(known)) + state)


def _split(content: bytes) -> tuple[bytes, frozenset[bytes]]:
    """State of the books, and digests of what they had missed."""
    end = _DIGEST * (1 + int.from_bytes(content[:_DIGEST], "little"))
    if end > len(content):
        raise CorruptMetadata("not a state of books: it ends too early")
    places = range(_DIGEST, end, _DIGEST)
    return content[end:], frozenset(content[at : at + _DIGEST] for at in places)


def _digest(gap: Gap) -> bytes:
    return hashlib.blake2b(repr(event_of(gap)).encode(), digest_size=_DIGEST).digest()
