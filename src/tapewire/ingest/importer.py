"""The interface of importers: options, chunks of records, and the summary of an import."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tapewire.config import check_whole
from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    import numpy as np

    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["Chunk", "ImportOptions", "ImportSummary", "Importer", "LogSummary"]

MAX_SCALE = 18  # of a decimal in an i64


@dataclass(slots=True)
class Chunk:
    """Records of one type for one stream, in order.

    Attributes:
        venue: The venue's name, a directory name.
        symbol: The symbol's name, a directory name.
        stream: "book", "trades", "quotes", or "raw" for the venue's own bytes.
        type_id: The type of every record.
        timestamps_ns: The time of each record; it decides the UTC day, and so the log.
        payloads: The payload of each record: bytes, or rows of a 2-D or structured array.
        lines: The line or position in the source of each record, or of its first row.
        sources: The index of the source file, for all records or for each.
        unique: Whether trades with the same id, time, price and size are the same trade.
        last_lines: Of records made from several rows each, the lines of their last rows.
        next_lines: The line of the stream's next record in each file, as far as it is known.
    """

    venue: str
    symbol: str
    stream: str
    type_id: int
    timestamps_ns: Sequence[int] | np.ndarray[Any, Any]
    payloads: Sequence[bytes] | np.ndarray[Any, Any]
    lines: Sequence[int] | np.ndarray[Any, Any] | None = None
    sources: int | np.ndarray[Any, Any] = 0
    unique: bool = False
    last_lines: np.ndarray[Any, Any] | None = None
    next_lines: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.timestamps_ns)

    def part(self, start: int, stop: int) -> Chunk:
        """The records from `start` up to `stop`."""
        return dataclasses.replace(
            self,
            timestamps_ns=self.timestamps_ns[start:stop],
            payloads=self.payloads[start:stop],
            lines=None if self.lines is None else self.lines[start:stop],
            sources=self.sources if isinstance(self.sources, int) else self.sources[start:stop],
            last_lines=None if self.last_lines is None else self.last_lines[start:stop],
        )

    def where(self, mask: np.ndarray[Any, Any]) -> Chunk:
        """The records of a mask."""
        import numpy as np

        rows: Any = self.payloads
        if not isinstance(rows, np.ndarray):
            rows = list(itertools.compress(rows, mask.tolist()))
        elif rows.dtype.names is None:
            rows = rows[mask]
        else:  # with the bytes between the fields, which numpy would not copy
            rows = rows.view(np.dtype((np.void, rows.dtype.itemsize)))[mask].view(rows.dtype)
        return dataclasses.replace(
            self,
            timestamps_ns=np.asarray(self.timestamps_ns)[mask],
            payloads=rows,
            lines=None if self.lines is None else np.asarray(self.lines)[mask],
            sources=self.sources if isinstance(self.sources, int) else self.sources[mask],
            last_lines=None if self.last_lines is None else self.last_lines[mask],
        )


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options that every importer has; its own options are in a subclass, also frozen.

    Attributes:
        symbols: Import only these symbols; empty: all.
        price_scale: Decimals of a price. A value with more is a bad row.
        size_scale: Decimals of a size.
        keep_wire: Also write the venue's own bytes, as `VenueRaw`, into the stream "raw".
    """

    symbols: tuple[str, ...] = ()
    price_scale: int = 8
    size_scale: int = 8
    keep_wire: bool = False

    def __post_init__(self) -> None:
        given: Any = self.symbols
        if isinstance(given, str) or not all(isinstance(symbol, str) for symbol in given):
            raise InvalidOption(f"symbols must be a sequence of names: symbols={given!r}")
        object.__setattr__(self, "symbols", tuple(given))
        check_whole("price_scale", self.price_scale, 0, MAX_SCALE)
        check_whole("size_scale", self.size_scale, 0, MAX_SCALE)

    def of_records(self) -> dict[str, Any]:
        """The options that decide which records an import makes."""
        return dataclasses.asdict(self)


class Importer(Protocol):
    """Turns files into chunks. A new one is created for each run, with the options.

    `chunks` must be deterministic: the same files and options give the same records in the same
    order. A run that was killed is resumed by running it again and skipping the existing records.
    """

    name: ClassVar[str]
    venue: ClassVar[str]
    Options: ClassVar[type[ImportOptions]]

    def __init__(self, options: Any) -> None: ...

    def check(self, files: Sequence[SourceFile]) -> None:
        """Check, before anything is written, that the files belong to this importer.

        Raises:
            InvalidOption: Their content belongs to another venue or market.
        """

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of `files`, as a stream; bad rows go to `report`.

        If reading a file raises `CorruptSource`, yield the records before the damage, then let it
        propagate.
        """
        ...


@dataclass
class LogSummary:
    """What an import wrote into one log."""

    log: str  # path below the archive
    records: int = 0  # of this job, including earlier runs that were killed
    appended: int = 0  # by this run
    first_seq: int = 0
    gaps: int = 0
    overlapping: int = 0  # records without an identity, of a time before the end of an earlier job


@dataclass
class ImportSummary:
    """What `run` did.

    Attributes:
        job: The job's id: the importer's name and a hash of options and files.
        already: The same files were imported before with the same options; nothing was done.
        logs: What was written into each log, by path below the archive.
        rows: Lines or messages that were read.
        bad: Number of rows written to `rejected.jsonl`, by reason.
        skipped: Number of known messages that are not imported, by kind.
        gaps: Number of gaps that this job added to ledgers.
        untrusted: Books that are untrusted at the end (no snapshot since a gap), and why.
        rejected: The file with the bad rows, or None.
        seconds: How long this run took.
    """

    job: str
    already: bool = False
    resumed: bool = False
    logs: dict[str, LogSummary] = field(default_factory=dict)
    rows: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    gaps: int = 0
    untrusted: dict[str, str] = field(default_factory=dict)
    rejected: str | None = None
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Records of this job in all logs."""
        return sum(log.records for log in self.logs.values())

    @property
    def overlapping(self) -> int:
        """Records that may be in their logs twice.

        Their times are before the end of what was there before the job, and no id of the venue
        shows whether they are new.
        """
        return sum(log.overlapping for log in self.logs.values())

    @property
    def clean(self) -> bool:
        """Whether there is no bad row, no gap, no untrusted book and no overlapping record."""
        return not (self.bad or self.gaps or self.untrusted or self.overlapping)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain values, stable keys."""
        return {
            "job": self.job,
            "already": self.already,
            "resumed": self.resumed,
            "records": self.records,
            "appended": sum(log.appended for log in self.logs.values()),
            "rows": self.rows,
            "bad_rows": sum(self.bad.values()),
            "bad": dict(self.bad),
            "skipped": dict(self.skipped),
            "gaps": self.gaps,
            "overlapping": self.overlapping,
            "untrusted": dict(self.untrusted),
            "rejected": self.rejected,
            "seconds": round(self.seconds, 3),
            "logs": [
                {
                    "log": log.log,
                    "records": log.records,
                    "appended": log.appended,
                    "first_seq": log.first_seq,
                    "gaps": log.gaps,
                    "overlapping": log.overlapping,
                }
                for log in self.logs.values()
            ],
        }

    @classmethod
    def from_dict(cls, job: str, value: dict[str, Any]) -> ImportSummary:
        """Of a finished job, from what its file holds.

        Raises:
            ValueError: That is not what `to_dict` gives.
        """
        summary = cls(job=job, already=True)
        for name in ("rows", "bad", "skipped", "gaps", "untrusted"):
            if type(value.get(name)) is not type(getattr(summary, name)):
                raise ValueError(f"{name}={value.get(name)!r:.80}")
            setattr(summary, name, value[name])
        for log in value.get("logs", []):
            numbers = {key: log[key] for key in ("records", "first_seq", "gaps")}
            numbers["overlapping"] = log.get("overlapping", 0)  # absent in earlier releases
            if type(log["log"]) is not str or any(type(n) is not int for n in numbers.values()):
                raise ValueError(f"logs holds {log!r:.80}")
            summary.logs[log["log"]] = LogSummary(log["log"], **numbers)
        return summary
