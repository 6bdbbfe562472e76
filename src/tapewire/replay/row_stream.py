"""The base of all streams of rows: range, batches, and a state that can be saved.

A row is a function of the book at its time and of a finite look-back before it, computed in
integers and rounded once. So a slice ``[time_from, time_to)`` of any size gives the same bits as
one pass over the logs, and a stream can be saved and resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypedDict

from tapewire.errors import InvalidOption
from tapewire.replay import _features
from tapewire.replay.names import Names
from tapewire.replay.playback import check_numbers, open_engine
from tapewire.replay.snapshots import SkippedFile
from tapewire.replay.sources import Sources
from tapewire.replay.start import missing_at_start, move_past, next_record, time_range

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.clock import TimeLike
    from tapewire.protocol.instruments import Instrument, Instruments
    from tapewire.replay._native import Engine
    from tapewire.replay.sources import Logs

__all__ = ["BATCH_ROWS", "RowOptions", "RowStream", "load_arrow", "look_back_ns"]

BATCH_ROWS = 65_536
_NEVER = -(2**63)


def load_arrow() -> Any:
    """Import pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("rows are Arrow tables: pip install 'tapewire[arrow]'") from error
    return pyarrow


class RowOptions(TypedDict, total=False):
    """The options of all streams of rows, described at `FeatureStream`."""

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
    """Return how far before its time records affect a row other than through the book.

    Raises:
        InvalidOption: A feature or the sample is unknown.

    Example:
        >>> look_back_ns(["mid", "vwap_5s"], "event")
        5000000000
    """
    return _features.Plan(names, sample).look_back_ns


class RowStream:
    """Rows as record batches, up to the current end of the logs.

    Args:
        logs: As for `FeatureStream`, like the arguments not listed here.
        plan: The columns, and the times of the rows.
        venues: Whether there is a column `venue`.
        names: The instruments; None makes them from `instruments` and the logs.
        batch_rows: Maximum number of rows in a batch.

    Attributes:
        done: Whether `time_to` or `seq_to` has been reached.
        findings: Snapshots that were skipped, with the reason.
    """

    def __init__(
        self,
        logs: Logs,
        plan: _features.Plan,
        *,
        venues: bool,
        names: Names | None = None,
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
        if isinstance(logs, Iterator):  # iterated more than once below
            logs = list[Any](logs)
        from_ns, end_ns = time_range(time_from, time_to)
        # Without `symbols`, the instruments are only known by reading the logs from the start.
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
            if names is None:
                names = Names(instruments, self._sources.directories, qualify=not venues)
            self._engine = open_engine(
                self._sources,
                names,
                None if symbols is None else names.find(symbols),
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
                # Logs that are not opened follow the others: no record refers to them.
                self._loop.load(state, names_here + self._over)
            for index, (first, last) in lost.items():
                self._engine.lost_before(index, first, last)
            self._begin_batch()
            self._close = opened.pop_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over batches of at most 65,536 rows up to the current end of the logs."""
        while True:
            batch, more = self._batch(follow=False)
            if batch.num_rows:
                yield batch
            if not more:
                return

    def follow(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """Iterate and wait for more; end after `timeout` seconds without a row, or at `time_to`."""
        while True:
            batch, more = self._batch(follow=True)
            if batch.num_rows:
                yield batch
            if not more and (self.done or not self._engine.wait(timeout)):
                return

    def exhaust(self) -> None:
        """Read to the current end of the logs and drop the rows."""
        more = True
        while more:
            more = self._fill(follow=False) == "rows"
            self._begin_batch()

    def _begin_batch(self) -> None:
        """Start a new batch; rows made before an error remain in it for the next call."""
        self._rows = self._loop.rows()

    def _batch(self, follow: bool) -> tuple[pa.RecordBatch, bool]:
        stop = self._fill(follow)
        self.done = stop == "done"
        self._loop.finish(self._rows, self._venues)
        batch = self._finished(self._pa.record_batch(self._rows))
        self._begin_batch()
        return batch, stop == "rows"

    def _fill(self, follow: bool) -> str:
        """Make rows until the batch is full or the logs end; return which."""
        return self._loop.run(self._rows, self._batch_rows, follow)

    def _finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with all columns, in the order of the schema."""
        return batch.select(self.schema.names)

    def save(self) -> bytes:
        """Return the state from which another process can continue after the rows returned so far.

        The bytes are checked when they are loaded, and only this version of Tapewire reads them: do
        not archive them. Logs are identified by their names. The next stream may have other ends
        (`time_to`, `seq_to`) and additional logs. For an untrusted book, the state includes the
        diffs that wait for its snapshot, at most 64 MiB.

        Raises:
            InvalidOption: After an error, rows were made that no batch has returned: iterate once
                more first.
        """
        if len(self._rows):
            raise InvalidOption(
                f"rows made before an error were not returned yet: rows={len(self._rows)}",
                hint="iterate once more, or continue from the last state",
            )
        positions = {}
        for source in self._sources.each:
            last = source.reader.last_seq
            positions[source.name] = self._before.get(source.name) if last is None else last
        positions |= {name: self._before[name] for name in self._over}
        return self._loop.save(positions)

    @property
    def engine(self) -> Engine:
        """The engine that maintains the books; only this stream may advance it."""
        return self._engine

    @property
    def records(self) -> int:
        """Records read so far, including those before the first row."""
        return self._engine.records

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the logs that this stream opened. A second call has no effect."""
        self._close.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _first_times(
    logs: Logs, seq_from: int | None, seq_to: int | Mapping[str, int] | None
) -> tuple[int | None, int | None]:
    """Return the times of the first record of the logs, and of the one before `seq_from`.

    No row from `seq_from` on has an earlier time than the latter: the time of a replay is never
    less than that of a record it has read, and a point of a grid that a record reaches is later
    than the time before. None if a log was opened by the caller, or has no such record.
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
    """Open readers at the positions of the state; return them, the positions, and lost records."""
    positions = _features.positions_in(state)
    sources = opened.enter_context(contextlib.closing(Sources(logs)))
    names = [source.name for source in sources.each]
    if not set(positions) <= {*names, *finished}:
        raise InvalidOption(
            f"the state is of other logs: logs={names!r}, state={list(positions)!r}",
            hint="pass the same paths, or a dict with those names if the logs have moved",
        )
    lost = {}
    for index, source in enumerate(sources.each):
        if not source.own:
            raise InvalidOption(
                f"with a state, logs must be paths: {source.name}={source.reader!r}"
            )
        last = positions.get(source.name)
        gone = missing_at_start(source.reader) if last is None else move_past(source.reader, last)
        if gone is not None:
            lost[index] = gone
    return {source.name: source.reader for source in sources.each}, positions, lost
