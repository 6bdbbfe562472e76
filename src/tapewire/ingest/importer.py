"""What importers and the framework hand each other: records in chunks, options, a summary."""

from __future__ import annotations

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
    """Records of one type for one log, in their order.

    Attributes:
        venue: The venue's name; becomes a folder.
        symbol: The symbol's name; becomes a folder.
        stream: "book", "trades", "quotes", or "raw" for the venue's own bytes.
        type_id: The type of every record.
        timestamps_ns: A time for each record; what the log is split into days by.
        payloads: A payload for each: bytes, or the rows of a 2-D or structured array.
        line: The line of the source that the first record comes from, where that says anything.
    """

    venue: str
    symbol: str
    stream: str
    type_id: int
    timestamps_ns: Sequence[int] | np.ndarray[Any, Any]
    payloads: Sequence[bytes] | np.ndarray[Any, Any]
    line: int | None = None

    def __len__(self) -> int:
        return len(self.timestamps_ns)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options that every importer has; its own ones come in a subclass, frozen too.

    Attributes:
        symbols: Only these symbols; none given, all of them.
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


class Importer(Protocol):
    """What turns files into chunks. Made anew for each run, with its options.

    `chunks` must be deterministic: the same files and options give the same records in the same
    order, for a run that was killed is resumed by running it again and leaving out what is there.
    """

    name: ClassVar[str]
    venue: ClassVar[str]
    Options: ClassVar[type[ImportOptions]]

    def __init__(self, options: Any) -> None: ...

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of `files`, streaming. What is wrong with a row goes to `report`.

        A `CorruptSource` that reading a file raises is let through, after what came before it
        in the file was yielded.
        """
        ...


@dataclass
class LogSummary:
    """What an import wrote into one log."""

    log: str  # path below the archive
    records: int = 0  # of this job, those of its earlier, killed runs included
    appended: int = 0  # by this run
    first_seq: int = 0
    gaps: int = 0


@dataclass
class ImportSummary:
    """What `run` did.

    Attributes:
        job: The job's id: a hash of importer, options and files.
        already: The same files were imported before with the same options; nothing was done.
        logs: By path below the archive.
        rows: Lines or messages that were looked at.
        bad: How many rows were kept aside, by reason.
        skipped: How many known messages are of a kind that is not imported, by kind.
        gaps: How many gaps are in the ledgers because of this job.
        untrusted: Books that were not right at the end (no snapshot since a gap), and why.
        rejected: The file that holds the bad rows, or None.
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
    def clean(self) -> bool:
        """No bad row, no gap, and every book is right."""
        return not self.bad and not self.gaps and not self.untrusted

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
            if type(log["log"]) is not str or any(type(n) is not int for n in numbers.values()):
                raise ValueError(f"logs holds {log!r:.80}")
            summary.logs[log["log"]] = LogSummary(log["log"], **numbers)
        return summary
