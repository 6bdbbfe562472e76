"""Gaps that the books of a log find, one micro-batch after the other.

A book detects gaps in the venue's sequence numbers, for which it must have seen the earlier ones.
So the books of a log are saved between micro-batches, in the directory of option `state`, like
those of replayed views. A state also holds digests of the gaps found before it, so that a gap that
the ledger reports later is not returned again. A lost state is rebuilt.
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
from tapewire.spark.streaming.replay_steps import ReplayStep, check_available, first_seq_of

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["BookGaps", "find_book_gaps", "first_needed_seq", "may_have_books"]

# The rows of the replay are not used: make few.
_SAMPLE = "1d"
_DIGEST_BYTES = 8


def may_have_books(log: LogRef) -> bool:
    """Whether a log may contain book events, by its stream."""
    return log.stream not in WITHOUT_BOOKS


@dataclass(frozen=True)
class BookGaps:
    """The gaps that the books of a log find in one step.

    Attributes:
        found: Gaps found at the records of this step.
        before: Digests of the gaps found by earlier steps.
    """

    found: list[Gap]
    before: frozenset[bytes]

    def found_before(self, gap: Gap) -> bool:
        """Whether an earlier step found this gap."""
        return _digest(gap) in self.before


def find_book_gaps(log: LogRef, start: int, end: int, options: ReadOptions) -> BookGaps:
    """Replay the records from `start` to `end`, exclusive, and return the gaps found there.

    Raises:
        SegmentMissing: The state at `start` is lost, and the records to rebuild it were retired.
    """
    checkpoints = _checkpoints_of(options)
    state, before = _state_at(log, start, options, checkpoints)
    if end <= start:
        return BookGaps([], before)
    found, after = _replay(log, end, state, options)
    _save(checkpoints, log, end, before.union(map(_digest, found)), after)
    return BookGaps(found, before)


def first_needed_seq(log: LogRef, committed: int, options: ReadOptions) -> int:
    """The first sequence number that is still needed once those below `committed` are committed."""
    kept = _checkpoints_of(options).prune(log.name, _mark(log, committed))
    return 0 if kept is None else min(kept.mark.logs[log.name], committed)


def _state_at(
    log: LogRef, seq: int, options: ReadOptions, checkpoints: Checkpoints
) -> tuple[bytes | None, frozenset[bytes]]:
    """The books after all records below `seq`, and digests of the gaps found by then."""
    if seq == 0:
        checkpoints.save_origin(log.name, {log.name: first_seq_of(status(log.path))})
        return None, frozenset()
    mark = _mark(log, seq)
    nearest = checkpoints.find(log.name, mark)
    state, known = (None, frozenset[bytes]()) if nearest is None else _split(nearest.state)
    if nearest is not None and nearest.mark == mark:
        return state, known
    first = checkpoints.load_origin(log.name) if nearest is None else nearest.mark.logs
    step = ReplayStep(log.name, None, {log.name: log.path}, mark, mark)
    check_available(step, nearest, first, options)
    found, state = _replay(log, seq, state, options)
    known = known.union(map(_digest, found))
    _save(checkpoints, log, seq, known, state)
    return state, known


def _replay(
    log: LogRef, end: int, state: bytes | None, options: ReadOptions
) -> tuple[list[Gap], bytes]:
    """Replay from the state up to `end`: the gaps found, and the state at `end`."""
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


def _checkpoints_of(options: ReadOptions) -> Checkpoints:
    assert options.state is not None
    names = ("view", "seq_from", "time_from", "instruments", "reader")
    meaning = {name: getattr(options, name) for name in names}
    return Checkpoints(options.state, meaning, lambda state: positions_in(_split(state)[0]))


def _mark(log: LogRef, seq: int) -> CheckpointMark:
    """The mark of a single log, whose sequence numbers take the place of time."""
    return CheckpointMark(seq, {log.name: seq})


def _save(
    checkpoints: Checkpoints, log: LogRef, seq: int, known: frozenset[bytes], state: bytes
) -> None:
    head = len(known).to_bytes(_DIGEST_BYTES, "little")
    checkpoints.save(log.name, _mark(log, seq), head + b"".join(sorted(known)) + state)


def _split(content: bytes) -> tuple[bytes, frozenset[bytes]]:
    """The state of the books, and digests of the gaps found before."""
    end = _DIGEST_BYTES * (1 + int.from_bytes(content[:_DIGEST_BYTES], "little"))
    if end > len(content):
        raise CorruptMetadata(f"not a state of books: bytes={len(content)}, digests_end={end}")
    offsets = range(_DIGEST_BYTES, end, _DIGEST_BYTES)
    return content[end:], frozenset(content[at : at + _DIGEST_BYTES] for at in offsets)


def _digest(gap: Gap) -> bytes:
    return hashlib.blake2b(repr(event_of(gap)).encode(), digest_size=_DIGEST_BYTES).digest()
