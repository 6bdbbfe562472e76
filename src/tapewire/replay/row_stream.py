"""What all streams of rows have in common: where they begin and end, batches, and a state to keep.

A row is a function of the book at its time and of a finite look-back before it, computed in
integers and rounded once. So a slice ``[time_from, time_to)`` of any size gives the same bits as
one pass over the whole tape, and the state of a stream can be kept and taken up again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypedDict

from tapewire.errors import InvalidOption
from tapewire.replay import _features
from tapewire.replay.playback import check_numbers, open_engine
from tapewire.replay.snapshots import SkippedFile
from tapewire.replay.sources import Sources
from tapewire.replay.start import begins_late, next_record, stand_behind, time_range

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.clock import TimeLike
    from tapewire.protocol.instruments import Instrument, Instruments
    from tapewire.replay._native import Engine
    from tapewire.replay.names import Names
    from tapewire.replay.sources import Logs

__all__ = ["BATCH_ROWS", "RowOptions", "RowStream", "load_arrow", "look_back_ns"]

BATCH_ROWS = 65_536
_NEVER = -(2**63)


def load_arrow() -> Any:
    """The module pyarrow, which rows are made for."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("rows are Arrow tables: pip install 'tapewire[arrow]'") from error
    return pyarrow


class RowOptions(TypedDict, total=False):
    """What every stream of rows takes; `FeatureStream` says what each is."""

    symbols: Iterable[str | Instrument] | str | None
    time_from: TimeLike | None
    time_to: TimeLike | None
    seq_from: int | None
    seq_to: int | Mapping[str, int] | None
    instruments: Instruments | None
    on_gap: str
    snapshots: bool
    skip_damaged: bool
    state: bytes | None
    finished: Iterable[str]


def look_back_ns(names: Iterable[str], sample: str) -> int:
    """How long before its time a row may have been decided, but through the book.

    Raises:
        InvalidOption: There is no such feature, or no such sample.

    Example:
        >>> look_back_ns(["mid", "vwap_5s"], "event")
        5000000000
    """
    return _features.Plan(names, sample).look_back_ns


class RowStream:
    """Rows as record batches, as far as the tape goes now; `FeatureStream` and `BookStream` are.

    Attributes:
        done: Whether the tape has reached `time_to` or `seq_to`.
        findings: Snapshots that were passed over, and why.
    """

    def __init__(
        self,
        logs: Logs,
        plan: _features.Plan,
        names: Callable[[Instruments | None, Iterable[str]], Names],
        *,
        venues: bool,
        batch_rows: int = BATCH_ROWS,
        symbols: Iterable[str | Instrument] | str | None = None,
        time_from: TimeLike | None = None,
        time_to: TimeLike | None = None,
        seq_from: int | None = None,
        seq_to: int | Mapping[str, int] | None = None,
        instruments: Instruments | None = None,
        on_gap: str = "resync",
        snapshots: bool = True,
        skip_damaged: bool = False,
        state: bytes | None = None,
        finished: Iterable[str] = (),
    ) -> None:
        self._pa = load_arrow()
        self._venues = venues
        self._batch_rows = batch_rows
        self.done = False
        self.findings: list[SkippedFile] = []
        if isinstance(logs, Iterator):  # looked at twice
            logs = list[Any](logs)
        from_ns, end_ns = time_range(time_from, time_to)
        # Which instruments there are is known from the beginning of the tape alone, unless they
        # are named.
        start_ns = first_ns = None
        with contextlib.ExitStack() as opened:
            if symbols is not None and state is None and (from_ns, seq_from) != (None, None):
                first_ns, seq_ns = _first_times(logs, seq_from, seq_to)
                begin = max((at for at in (from_ns, seq_ns) if at is not None), default=None)
                if begin is not None:
                    start_ns = max(begin - plan.look_back_ns, _NEVER + 1)
            self._before: dict[str, int | None] = {}
            lost: dict[int, tuple[int, int]] = {}
            if state is not None:
                logs, self._before, lost = _reopened(logs, state, opened, set(finished))
            self._sources = opened.enter_context(contextlib.closing(Sources(logs)))
            labels = names(instruments, self._sources.folders)
            self._engine = open_engine(
                self._sources,
                labels,
                None if symbols is None else labels.find(symbols),
                time_from=start_ns if first_ns is not None else None,
                seq_to=seq_to,
                on_gap=on_gap,
                snapshots=snapshots,
                skip_damaged=skip_damaged,
                findings=self.findings,
            )
            self._loop = _features.Loop(
                self._engine,
                plan,
                start_ns=start_ns if first_ns is not None else None,
                from_ns=from_ns,
                to_ns=end_ns,
                from_seq=seq_from or 0,
                first_ns=first_ns or 0,
                for_all_added=symbols is not None,
            )
            names_here = [source.name for source in self._sources.each]
            self._over = [name for name in self._before if name not in names_here]
            if state is not None:
                # Those that are not opened have places behind the others: no record is of them.
                self._loop.load(state, names_here + self._over)
            for place, (first, last) in lost.items():
                self._engine.lost_before(place, first, last)
            self._begin_batch()
            self._close = opened.pop_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of at most 65,536 rows, until nothing more is there now."""
        while True:
            batch, more = self._batch(follow=False)
            if batch.num_rows:
                yield batch
            if not more:
                return

    def follow(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """The same, and waits for more; ends after `timeout` seconds without, or at `time_to`."""
        while True:
            batch, more = self._batch(follow=True)
            if batch.num_rows:
                yield batch
            if not more and (self.done or not self._engine.wait(timeout)):
                return

    def exhaust(self) -> None:
        """Go on to the end of what is there now; the rows are dropped."""
        more = True
        while more:
            more = self._fill(follow=False) == "rows"
            self._begin_batch()

    def _begin_batch(self) -> None:
        """Rows under way: what an error finds made stays, for the next call."""
        self._rows = self._loop.rows()

    def _batch(self, follow: bool) -> tuple[pa.RecordBatch, bool]:
        stop = self._fill(follow)
        self.done = stop == "done"
        self._loop.finish(self._rows, self._venues)
        batch = self._finished(self._pa.record_batch(self._rows))
        self._begin_batch()
        return batch, stop == "rows"

    def _fill(self, follow: bool) -> str:
        """Make rows until the batch is full or nothing more is there now; which of them."""
        return self._loop.run(self._rows, self._batch_rows, follow)

    def _finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with all its columns, in their order."""
        return batch.select(self.schema.names)

    def save(self) -> bytes:
        """All that is needed to go on in another process behind the rows given so far.

        The bytes are checked when they are taken up, and belong to this version of Tapewire: they
        are no archive. Sources are told apart by their names. Who goes on may give other ends
        (`time_to`, `seq_to`), and logs that came to be since. An untrusted book is kept with what
        waits for its snapshot, at most 64 MiB of diffs.

        Raises:
            InvalidOption: An error came between rows that were made and the batch they belong to:
                iterate once more first.
        """
        if len(self._rows):
            raise InvalidOption(
                f"rows were made and not given, since an error came: rows={len(self._rows)}",
                hint="iterate once more, or go on from the last state",
            )
        positions = {}
        for source in self._sources.each:
            last = source.reader.last_seq
            positions[source.name] = self._before.get(source.name) if last is None else last
        positions |= {name: self._before[name] for name in self._over}
        return self._loop.save(positions)

    @property
    def engine(self) -> Engine:
        """What keeps the books; it is moved by the rows alone."""
        return self._engine

    @property
    def records(self) -> int:
        """Records read so far, those before the first row included."""
        return self._engine.records

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the logs that were opened here. Closing twice is fine."""
        self._close.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _first_times(
    logs: Logs, seq_from: int | None, seq_to: int | Mapping[str, int] | None
) -> tuple[int | None, int | None]:
    """Times of the tape's first record, and of the one in front of `seq_from`.

    No row of `seq_from` is of a time before that: the tape's clock is never behind a record's time,
    and a point of a grid that a record reaches is later than the clock before it. None when logs
    are not ours to move, or have no such record.
    """
    with contextlib.closing(Sources(logs)) as sources:
        check_numbers(sources, seq_from, seq_to)
        if not all(source.own for source in sources.each):
            return None, None
        readers = [source.reader for source in sources.each]
        records = [record for record in map(next_record, readers) if record is not None]
        first = min((record.timestamp_ns for record in records), default=None)
        if not seq_from:
            return first, None
        readers[0].seek_seq(seq_from - 1)
        record = next_record(readers[0])
        if record is None or record.seq != seq_from - 1:
            return first, None
        return first, record.timestamp_ns


def _reopened(
    logs: Logs, state: bytes, opened: contextlib.ExitStack, finished: set[str]
) -> tuple[dict[str, Any], dict[str, int | None], dict[int, tuple[int, int]]]:
    """Readers of the logs, where the state has read them to, and what they have lost since."""
    positions = _features.positions_in(state)
    sources = opened.enter_context(contextlib.closing(Sources(logs)))
    names = [source.name for source in sources.each]
    if not set(positions) <= {*names, *finished}:
        raise InvalidOption(
            f"the state is of other logs: logs={names!r}, state={list(positions)!r}",
            hint="give the same paths, or a dict with those names where they have moved",
        )
    lost = {}
    for place, source in enumerate(sources.each):
        if not source.own:
            raise InvalidOption(
                f"with a state, logs must be paths: {source.name}={source.reader!r}"
            )
        last = positions.get(source.name)
        gone = begins_late(source.reader) if last is None else stand_behind(source.reader, last)
        if gone is not None:
            lost[place] = gone
    return {source.name: source.reader for source in sources.each}, positions, lost
