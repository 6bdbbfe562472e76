"""Databento's files (DBN): mbo as single orders, mbp as snapshots, trades as trades.

Ingest time is `ts_recv`, the exchange's time `ts_event`. Prices have nine decimals and are imported
exactly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tapewire.bus.names import check_name
from tapewire.clock import DAY_NS
from tapewire.config import check_whole
from tapewire.errors import CorruptSource
from tapewire.ingest.file_options import FileOptions
from tapewire.ingest.formats.dbn_books import (
    LevelBooks,
    OrderBooks,
    are_clears,
    are_live,
    are_trades,
    not_of_orders,
    trades_of,
)
from tapewire.ingest.formats.dbn_format import (
    DTYPES,
    HEAD_DTYPE,
    MBO,
    MBP_0,
    SYMBOL_MAPPING,
    TS_OUT_BYTES,
    DbnRun,
    Header,
    RunReader,
    mapped_symbol,
)
from tapewire.ingest.formats.dbn_rows import PRICE_DECIMALS, DbnRows
from tapewire.ingest.importer import Chunk, Importer
from tapewire.ingest.losses import Lost
from tapewire.ingest.symbols import directory_name, known_instrument

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["Dbn", "DbnOptions"]

_Array = np.ndarray[Any, Any]
TBBO = 3  # a schema: the best levels before each trade

_SKIPPED = {
    0x11: "bar",
    0x12: "status",
    0x13: "definition",
    0x14: "imbalance",
    0x15: "error",
    0x17: "system message",
    0x18: "statistics",
    **dict.fromkeys((0x20, 0x21, 0x22, 0x23, 0x24), "bar"),
    0xB1: "consolidated quote",
    **dict.fromkeys((0xC0, 0xC1, 0xC2), "consolidated quote"),
    **dict.fromkeys((0xC3, 0xC4), "quote"),
}


@dataclass(frozen=True, kw_only=True)
class DbnOptions(FileOptions):
    """Options of the DBN importer.

    Attributes:
        venue: The venue's name; without it, the dataset's code in lower case.
        trades: Whether to write the trades in files of mbo and mbp; set to false if a file of
            trades has the same ones.
        by_publisher: Whether each publisher of a dataset is a separate venue, named with the
            publisher's number as a suffix. Without it, trades of all of them are imported, and the
            book of the first one: a book cannot be built from two publishers.
    """

    price_scale: int = PRICE_DECIMALS
    size_scale: int = 0
    venue: str | None = None
    trades: bool = True
    by_publisher: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("size_scale", self.size_scale, 0, 9)
        if self.venue is not None:
            check_name("venue", self.venue)


class Dbn(Importer):
    """Importer of DBN files."""

    name: ClassVar[str] = "dbn"
    venue: ClassVar[str] = "of the dataset"
    Options: ClassVar[type[DbnOptions]] = DbnOptions

    def __init__(self, options: DbnOptions) -> None:
        self._options = options

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of the files; each is independent, and its books begin with a reset."""
        for source in files:
            yield from _File(self._options, source, report).chunks()


class _File:
    """The chunks of one file."""

    def __init__(self, options: DbnOptions, source: SourceFile, report: Report) -> None:
        self._options = options
        self._source = source
        self._report = report
        self._reader = RunReader(source)
        self._orders = OrderBooks(options, report)
        self._levels = LevelBooks(options, report)
        self._instruments: dict[tuple[str, bytes], Instrument | None] = {}
        self._owners: dict[tuple[str, str], bytes] = {}
        self._publishers: dict[int, int] = {}  # instrument → the publisher of its book
        self._latest_ns = 0  # the latest time of receipt

    def chunks(self) -> Iterator[Chunk]:
        try:
            for runs in self._reader.runs():
                yield from self._of_runs(runs)
        except CorruptSource:
            yield from self._levels.finish()
            raise
        yield from self._levels.finish()

    @property
    def _header(self) -> Header:
        assert self._reader.header is not None, "the header comes before the records"
        return self._reader.header

    def _of_runs(self, runs: list[DbnRun]) -> Iterator[Chunk]:
        """Group records by type, up to one that changes the names of instruments."""
        gathered: dict[int, list[DbnRows]] = {}
        for run in runs:
            self._report.rows += len(run.rows)
            if run.rtype == SYMBOL_MAPPING:
                yield from self._of_types(gathered)
                gathered = {}
                self._map(run)
            elif run.rtype in DTYPES:
                rows = self._typed(run)
                if rows is not None:
                    gathered.setdefault(run.rtype, []).append(rows)
            else:
                self._skip(run)
        yield from self._of_types(gathered)

    def _typed(self, run: DbnRun) -> DbnRows | None:
        """The records as fields; None if their length is wrong for their type."""
        dtype = DTYPES[run.rtype]
        numbers = np.arange(run.number, run.number + len(run.rows))
        if run.rows.shape[1] != dtype.itemsize + self._header.ts_out * TS_OUT_BYTES:
            for number, row in zip(numbers.tolist(), run.rows, strict=True):
                self._report.bad(self._source, number, row.tobytes(), "wrong length for its type")
            return None
        packed = np.ascontiguousarray(run.rows[:, : dtype.itemsize])
        return DbnRows(self._source, packed.view(dtype)[:, 0], numbers)

    def _skip(self, run: DbnRun) -> None:
        """Count records of another type; if it is unknown, they may have been orders."""
        kind = _SKIPPED.get(run.rtype)
        self._report.skipped[kind or f"of type 0x{run.rtype:02X}"] += len(run.rows)
        if kind is not None:
            return
        heads = np.ascontiguousarray(run.rows[:, : HEAD_DTYPE.itemsize]).view(HEAD_DTYPE)[:, 0]
        days = heads["ts_event"] // np.uint64(DAY_NS)
        of_each = zip(heads["instrument_id"].tolist(), days.tolist(), strict=True)
        for line, (number, day) in enumerate(of_each, run.number):
            symbol = directory_name(self._header.name_of(number, day))
            self._report.lost(self._source, Lost(line, symbol))

    def _map(self, run: DbnRun) -> None:
        for number, row in enumerate(run.rows, run.number):
            mapped = mapped_symbol(self._header.version, row.tobytes())
            if mapped is None:
                self._report.bad(self._source, number, row.tobytes(), "no instrument")
            else:
                self._header.rename(*mapped)
                self._report.skipped["symbol mapping"] += 1

    def _of_types(self, gathered: dict[int, list[DbnRows]]) -> Iterator[Chunk]:
        for rtype, parts in gathered.items():
            rows = DbnRows.concatenated(parts).with_times(self._report)
            if rtype == MBO:
                self._check_times(rows)
            for instrument, number, mine in self._by_instrument(rows):
                trades = self._options.trades
                if rtype == MBO:
                    book = self._of_one_publisher(number, mine, not_of_orders(mine))
                    yield from self._orders.chunks(instrument, number, book)
                elif rtype == MBP_0 or self._header.schema == TBBO:
                    trades = True
                else:
                    book = self._of_one_publisher(number, mine, are_trades(mine))
                    yield from self._levels.chunks(instrument, book)
                if trades:
                    yield from trades_of(instrument, mine, self._report)

    def _check_times(self, rows: DbnRows) -> None:
        """Report times of receipt that go back: a file is sorted by them, except its snapshots.

        Rows were moved or doubled, or have another time than they had: those of any instrument,
        since the ones that follow may have been moved too. A clear among them proves nothing.
        """
        live = rows.where(are_live(rows))
        latest_ns = np.maximum.accumulate(np.append(self._latest_ns, live.times_ns))
        self._latest_ns = int(latest_ns[-1])
        late = live.times_ns < latest_ns[:-1]
        begins = late & ~np.concatenate([[False], late[:-1]])
        after_clear = live.numbers[late & are_clears(live)] + 1
        for line in sorted([*live.numbers[begins].tolist(), *after_clear.tolist()]):
            self._report.lost(self._source, Lost(line, None, "out_of_order"))

    def _by_instrument(self, rows: DbnRows) -> Iterator[tuple[Instrument, int, DbnRows]]:
        """The rows of each instrument and day, in the order of their first occurrence."""
        if not len(rows):
            return
        keys = rows["instrument_id"].astype(np.int64) << 16
        keys |= (rows["ts_recv"] // np.uint64(DAY_NS)).astype(np.int64) & 0xFFFF
        if self._options.by_publisher:
            keys |= rows["publisher_id"].astype(np.int64) << 48
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(of, kind="stable")
        edges = np.flatnonzero(np.diff(of[order], prepend=-1))
        groups = np.split(order, edges[1:])
        for group in (groups[i] for i in np.argsort(first, kind="stable").tolist()):
            mine = rows.where(group)
            instrument = self._instrument(mine)
            if instrument is not None:
                yield instrument, int(mine["instrument_id"][0]), mine
            else:
                self._report.skipped["another symbol"] += len(mine)

    def _of_one_publisher(self, number: int, rows: DbnRows, beside: _Array) -> DbnRows:
        """The rows for a book: those of the first publisher that has one of this instrument.

        Rows of others are bad, except those in `beside`, which may have a trade.
        """
        publishers = rows["publisher_id"]
        if self._options.by_publisher or beside.all():
            return rows
        publisher = self._publishers.setdefault(number, int(publishers[~beside][0]))
        other = publishers != publisher
        if beside_others := int((other & beside).sum()):
            self._report.skipped["of another publisher, not of a book"] += beside_others
        kept = rows.where(~(other & beside))
        return kept.without(
            kept["publisher_id"] != publisher,
            self._report,
            "another publisher than the instrument's first",
            "import with by_publisher",
            of_book=False,
        )

    def _instrument(self, rows: DbnRows) -> Instrument | None:
        """The instrument of rows of one number and day; None if it is not imported."""
        from tapewire.protocol.instruments import Instrument

        number, day = int(rows["instrument_id"][0]), int(rows["ts_recv"][0]) // DAY_NS
        symbol = self._header.name_of(number, day)
        venue = self._venue(int(rows["publisher_id"][0]))
        key = (venue, symbol)
        if key not in self._instruments:
            options, name = self._options, directory_name(symbol)
            # A/B and A:B have the same directory name: the second one gets its number as a suffix.
            if name is None or self._owners.setdefault((venue, name), symbol) != symbol:
                name = f"{(name or 'instrument')[:50]}-{number}"
            known = None
            if (
                not options.symbols
                or name in options.symbols
                or symbol.decode(errors="replace") in options.symbols
            ):
                made = Instrument.of(
                    venue, name, options.price_scale, options.size_scale, book_mode="l3"
                )
                known = known_instrument(self._report, made, options)
            self._instruments[key] = known
        return self._instruments[key]

    def _venue(self, publisher: int) -> str:
        name = self._options.venue or directory_name(self._header.dataset.lower()) or "databento"
        return f"{name}-{publisher}" if self._options.by_publisher else name
