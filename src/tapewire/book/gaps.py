"""The gap ledger: `gaps.jsonl` in the directory of a log, with one checked line for each gap.

docs/formats/gaps.md describes the bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tapewire.book.checked_lines import MAX_LINE_BYTES, seal, unseal
from tapewire.errors import ConcurrentUse, CorruptMetadata, InvalidOption
from tapewire.files import take_lock

__all__ = ["FILE_NAME", "KINDS", "DamagedLine", "Gap", "GapLedger", "LedgerScan", "kind_of"]

FILE_NAME = "gaps.jsonl"
VERSION = 1
KINDS = ("venue", "record", "checksum", "parse")
_OF_SOURCE = ("rejected", "damaged_source")
MAX_DAMAGED_SHOWN = 1000
LOCK_SECONDS = 10.0
_TEXT_MAX = 256
_TEXTS = ("venue", "symbol", "stream", "cause", "action")
_NUMBERS = {"first": 2**64, "last": 2**64, "seq": 2**64, "timestamp_ns": 2**63}


@dataclass(frozen=True)
class Gap:
    """Missing or invalid data in a log, and how it was handled.

    Attributes:
        kind: "venue": messages of the venue are missing, or contradict each other. "record":
            records of the log are missing or damaged. "checksum": the book did not match the
            venue's checksum. "parse": a message could not be parsed.
        venue: Venue of the instrument; "" if the gap is in the complete log.
        symbol: Symbol of the instrument; "" likewise.
        stream: The stream, for example "book".
        first: First missing number: an update id of the venue, or a sequence number of the log.
        last: Last missing number.
        seq: Sequence number of the record at which the gap was found.
        timestamp_ns: Time of that record.
        cause: The cause, in a few words.
        action: How it was handled: for example "untrusted", later "resynced".

    Example:
        >>> Gap("venue", "binance", "BTCUSDT", "book", 11, 14, seq=7, timestamp_ns=1).missing
        4
    """

    kind: str
    venue: str
    symbol: str
    stream: str
    first: int
    last: int
    seq: int
    timestamp_ns: int
    cause: str = ""
    action: str = ""

    def __post_init__(self) -> None:
        error = _first_error(asdict(self))
        if error:
            raise InvalidOption(f"invalid gap: {error}")

    @property
    def key(self) -> tuple[str, str, str, str, int, int, int]:
        """The identity of the gap: all but its time, cause and action."""
        return (
            self.kind,
            self.venue,
            self.symbol,
            self.stream,
            self.first,
            self.last,
            self.seq,
        )

    @property
    def missing(self) -> int:
        """Count of missing numbers."""
        return self.last - self.first + 1


def kind_of(cause: str) -> str:
    """The kind of a gap that a book has found, by its cause in `BookGap`.

    Example:
        >>> kind_of("rejected"), kind_of("feed_gap")
        ('parse', 'venue')
    """
    return "parse" if cause in _OF_SOURCE else "venue"


class DamagedLine(NamedTuple):
    """A damaged line of the ledger."""

    line: int
    why: str


@dataclass
class LedgerScan:
    """The content of a ledger: the gaps and the damaged lines.

    Attributes:
        gaps: The gaps in the order in which they were first added, each with its latest action.
        damaged: The first damaged lines, at most 1,000.
        damaged_count: Total count of damaged lines.
    """

    gaps: list[Gap] = field(default_factory=list)
    damaged: list[DamagedLine] = field(default_factory=list)
    damaged_count: int = 0


class GapLedger:
    """The gaps of a log, stored in `gaps.jsonl` in its directory.

    Lines are only appended, each with a checksum. Several processes may add gaps: each first reads
    the lines of the others. The file is created by the first `add`.

    Example:
        >>> ledger = GapLedger(tmp)
        >>> gap = Gap("venue", "binance", "BTCUSDT", "book", 11, 14, seq=7, timestamp_ns=1)
        >>> ledger.add(gap), ledger.add(gap)  # the same again changes nothing
        (1, 0)
        >>> from dataclasses import replace
        >>> ledger.add(replace(gap, action="resynced"))
        1
        >>> [(gap.first, gap.last, gap.action) for gap in ledger.read()]
        [(11, 14, 'resynced')]
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory) / FILE_NAME
        self._state = _ReadState()

    def add(self, *gaps: Gap) -> int:
        """Append gaps that the ledger does not have; they are on disk when this returns.

        A gap that is present with the same cause and action is not written again. With another
        cause or action it is, and the last line counts.

        Returns:
            The number of lines written.

        Raises:
            CorruptMetadata: `gaps.jsonl` is a link or not a regular file.
            ConcurrentUse: Another process has been writing it for 10 seconds.
        """
        if not gaps:
            return 0
        created = not self.path.exists()
        with contextlib.closing(_open(self.path, write=True)) as file, _locked(file, self.path):
            if not self._state.continues_in(file):
                self._state = _ReadState()  # the file was replaced
            self._state.read(file)
            lines = [_render(gap) for gap in gaps if self._state.add(gap)]
            if lines:
                self._append(file, b"".join(lines), created)
            return len(lines)

    def _append(self, file: BinaryIO, text: bytes, created: bool) -> None:
        size = os.fstat(file.fileno()).st_size
        # A killed writer may have left an incomplete line: it remains as a damaged line.
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        text = b"\n" + text if torn else text
        try:
            if os.write(file.fileno(), text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self.path))
            os.fsync(file.fileno())
        except BaseException:
            self._state = _ReadState()  # its gaps are not on disk
            os.ftruncate(file.fileno(), size)
            raise
        self._state.read(file)
        if created:
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def read(self) -> list[Gap]:
        """Return the gaps without duplicates; damaged lines are skipped (see `scan`)."""
        return self.scan().gaps

    def scan(self) -> LedgerScan:
        """Return the gaps and the damaged lines; both are empty if there is no ledger.

        Raises:
            CorruptMetadata: `gaps.jsonl` is a link or not a regular file.
        """
        state = _ReadState()
        try:
            with contextlib.closing(_open(self.path, write=False)) as file:
                state.read(file)
        except (FileNotFoundError, NotADirectoryError):
            return LedgerScan()
        if state.tail:
            state.add_damaged("incomplete line: its writer was killed or is still writing")
        return LedgerScan(list(state.gaps.values()), state.damaged, state.damaged_count)

    def __repr__(self) -> str:
        return f"<GapLedger {os.fspath(self.path)!r}>"


class _ReadState:
    """The content of the file up to an offset."""

    def __init__(self) -> None:
        self.gaps: dict[tuple[Any, ...], Gap] = {}
        self.damaged: list[DamagedLine] = []
        self.damaged_count = 0
        self.lines = 0
        self.offset = 0
        self.tail = b""  # an incomplete last line
        self.inode = 0

    def continues_in(self, file: BinaryIO) -> bool:
        """Whether this is the file that was read, and it has not become shorter."""
        status = os.fstat(file.fileno())
        return self.inode in (0, status.st_ino) and status.st_size >= self.offset

    def read(self, file: BinaryIO) -> None:
        """Read the lines after the offset."""
        self.inode = os.fstat(file.fileno()).st_ino
        file.seek(self.offset)
        self.tail = b""
        for line, complete in _lines(file):
            if not complete:
                self.tail = line
                return
            self.offset = file.tell()
            self.lines += 1
            try:
                gap = _parse(line)
            except ValueError as error:
                self.add_damaged(str(error))
            else:
                self.gaps[gap.key] = gap

    def add(self, gap: Gap) -> bool:
        """Add a gap; return whether it is new or changed."""
        known = self.gaps.get(gap.key)
        if known is not None and (known.cause, known.action) == (gap.cause, gap.action):
            return False
        self.gaps[gap.key] = gap
        return True

    def add_damaged(self, why: str) -> None:
        self.damaged_count += 1
        if len(self.damaged) < MAX_DAMAGED_SHOWN:
            self.damaged.append(DamagedLine(self.lines + bool(self.tail), why))


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Iterate over ``(line, complete)``; a line that is too long is cut after the limit."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        piece = line
        while not piece.endswith(b"\n"):
            piece = file.readline(MAX_LINE_BYTES + 1)
            if not piece:
                yield line, False
                return
        yield line.removesuffix(b"\n") if piece is line else line, True


def _render(gap: Gap) -> bytes:
    return seal({"v": VERSION, **asdict(gap)})


def _parse(line: bytes) -> Gap:
    """Parse a line; an invalid one raises ValueError."""
    table = unseal(line)
    version = table.pop("v", None)
    if isinstance(version, int) and version > VERSION:
        raise ValueError(f"a later release wrote it: v={version}, known={VERSION}")
    if version != VERSION:
        raise ValueError(f"no such version: v={version!r:.40}")
    error = _first_error(table)
    if error:
        raise ValueError(error)
    return Gap(**table)


_NAMES = [each.name for each in fields(Gap)]


def _first_error(table: dict[str, Any]) -> str | None:
    if sorted(table) != sorted(_NAMES):
        return f"the members must be {', '.join(_NAMES)}"
    if table["kind"] not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}: kind={table['kind']!r:.40}"
    for name in _TEXTS:
        text = table[name]
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            return f"{name} must be a str of at most {_TEXT_MAX} characters: {name}={text!r:.40}"
    for name, limit in _NUMBERS.items():
        number = table[name]
        if type(number) is not int or not 0 <= number < limit:
            return f"{name} must be an int from 0 to {limit - 1}: {name}={number!r:.40}"
    if table["last"] < table["first"]:
        return f"last must not be below first: first={table['first']}, last={table['last']}"
    return None


def _open(path: Path, *, write: bool) -> BinaryIO:
    # Non-blocking, so that opening a FIFO does not hang.
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    flags |= os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptMetadata("links are not followed", path=os.fspath(path)) from None
        if error.errno == errno.EISDIR:
            raise CorruptMetadata("not a regular file", path=os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CorruptMetadata("not a regular file", path=os.fspath(path))
    return open(fd, "r+b" if write else "rb")


@contextlib.contextmanager
def _locked(file: BinaryIO, path: Path) -> Iterator[None]:
    """Hold the lock of the ledger, which is independent of the lock of the log's writer."""
    if not take_lock(file.fileno(), LOCK_SECONDS):
        raise ConcurrentUse(
            f"another process has been writing the ledger for {LOCK_SECONDS} s",
            path=os.fspath(path),
        )
    yield  # closing the file releases the lock
