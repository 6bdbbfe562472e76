"""The gap ledger: `gaps.jsonl` beside a log, one checked line for everything that was missing.

The bytes are in docs/formats/gaps.md.
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

__all__ = ["FILE_NAME", "KINDS", "DamagedLine", "Gap", "GapLedger", "LedgerScan"]

FILE_NAME = "gaps.jsonl"
VERSION = 1
KINDS = ("venue", "record", "checksum", "parse")
MAX_DAMAGED_SHOWN = 1000
LOCK_SECONDS = 10.0
_TEXT_MAX = 256
_TEXTS = ("venue", "symbol", "stream", "cause", "action")
_NUMBERS = {"first": 2**64, "last": 2**64, "seq": 2**64, "timestamp_ns": 2**63}


@dataclass(frozen=True)
class Gap:
    """Something that should have been there and was not, and what was done about it.

    Attributes:
        kind: "venue": the venue's own numbers leave some out. "record": the tape lacks records, or
            they are damaged. "checksum": the book did not match the venue's checksum.
            "parse": a message could not be read.
        venue: Of the instrument; "" where the gap is of the whole log.
        symbol: Of the instrument; "" likewise.
        stream: Which stream of it, for example "book".
        first: First number that is missing: the venue's, or a record's of the log.
        last: Last number that is missing.
        seq: Number of the record of the log at which it was seen.
        timestamp_ns: Time of that record.
        cause: Why, in a few words.
        action: What was done: for example "untrusted", then "resynced". May be told again later.

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
        wrong = _what_is_wrong(asdict(self))
        if wrong:
            raise InvalidOption(f"not a gap: {wrong}")

    @property
    def key(self) -> tuple[str, str, str, str, int, int, int]:
        """What tells one gap from another: all but its time, cause and action."""
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
        """How many numbers are missing."""
        return self.last - self.first + 1


class DamagedLine(NamedTuple):
    """A line of the ledger that cannot be believed."""

    line: int
    why: str


@dataclass
class LedgerScan:
    """What a ledger holds: the gaps, and the lines that are damaged.

    Attributes:
        gaps: Each gap once, in the order in which they were first told, with its latest action.
        damaged: The first damaged lines, at most 1,000.
        damaged_count: How many there are in all.
    """

    gaps: list[Gap] = field(default_factory=list)
    damaged: list[DamagedLine] = field(default_factory=list)
    damaged_count: int = 0


class GapLedger:
    """The gaps of the log in `folder`, kept in `gaps.jsonl` there.

    Lines are only ever added, each with its own checksum. Many processes may add: each looks at
    what the others wrote. Nothing is made before the first `add`.

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

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE_NAME
        self._fold = _Fold()

    def add(self, *gaps: Gap) -> int:
        """Write down what the ledger does not hold yet; synced to disk when this returns.

        A gap that is there with the same cause and action is not written again; with another cause
        or action, the new line counts.

        Returns:
            How many lines were written.

        Raises:
            CorruptMetadata: `gaps.jsonl` is a link or no file.
            ConcurrentUse: Another process has been writing it for 10 seconds.
        """
        if not gaps:
            return 0
        created = not self.path.exists()
        with contextlib.closing(_open(self.path, write=True)) as file, _locked(file, self.path):
            if not self._fold.goes_on_in(file):
                self._fold = _Fold()  # somebody put another file in its place
            self._fold.read_on(file)
            lines = [_render(gap) for gap in gaps if self._fold.take(gap)]
            if lines:
                self._append(file, b"".join(lines), created)
            return len(lines)

    def _append(self, file: BinaryIO, text: bytes, created: bool) -> None:
        size = os.fstat(file.fileno()).st_size
        # A line without an end is what a killed writer left: it stays, as a damaged line.
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        text = b"\n" + text if torn else text
        try:
            if os.write(file.fileno(), text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self.path))
            os.fsync(file.fileno())
        except BaseException:
            self._fold = _Fold()  # what it took is not on disk
            os.ftruncate(file.fileno(), size)
            raise
        self._fold.read_on(file)
        if created:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def read(self) -> list[Gap]:
        """The gaps, each once; damaged lines are passed over (`scan` tells of them)."""
        return self.scan().gaps

    def scan(self) -> LedgerScan:
        """The gaps and the damaged lines. A ledger that is not there is empty.

        Raises:
            CorruptMetadata: `gaps.jsonl` is a link or no file.
        """
        fold = _Fold()
        try:
            with contextlib.closing(_open(self.path, write=False)) as file:
                fold.read_on(file)
        except (FileNotFoundError, NotADirectoryError):
            return LedgerScan()
        if fold.tail:
            fold.damage("the line has no end: its writer was killed, or is at it")
        return LedgerScan(list(fold.gaps.values()), fold.damaged, fold.damaged_count)

    def __repr__(self) -> str:
        return f"<GapLedger {os.fspath(self.path)!r}>"


class _Fold:
    """What a reading of the file has come to."""

    def __init__(self) -> None:
        self.gaps: dict[tuple[Any, ...], Gap] = {}
        self.damaged: list[DamagedLine] = []
        self.damaged_count = 0
        self.lines = 0
        self.offset = 0
        self.tail = b""  # a last line without an end
        self.inode = 0

    def goes_on_in(self, file: BinaryIO) -> bool:
        """Whether this is the file that was read, and it has only grown."""
        status = os.fstat(file.fileno())
        return self.inode in (0, status.st_ino) and status.st_size >= self.offset

    def read_on(self, file: BinaryIO) -> None:
        """Take in what the file has beyond what was read."""
        self.inode = os.fstat(file.fileno()).st_ino
        file.seek(self.offset)
        self.tail = b""
        for line, whole in _lines(file):
            if not whole:
                self.tail = line
                return
            self.offset = file.tell()
            self.lines += 1
            try:
                gap = _parse(line)
            except ValueError as error:
                self.damage(str(error))
            else:
                self.gaps[gap.key] = gap

    def take(self, gap: Gap) -> bool:
        """Whether this is news."""
        there = self.gaps.get(gap.key)
        if there is not None and (there.cause, there.action) == (gap.cause, gap.action):
            return False
        self.gaps[gap.key] = gap
        return True

    def damage(self, why: str) -> None:
        self.damaged_count += 1
        if len(self.damaged) < MAX_DAMAGED_SHOWN:
            self.damaged.append(DamagedLine(self.lines + bool(self.tail), why))


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Each line without its end, and whether it has one; of a line too long, what shows that."""
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
    """The gap of a line; ValueError says what is wrong with it."""
    table = unseal(line)
    version = table.pop("v", None)
    if isinstance(version, int) and version > VERSION:
        raise ValueError(f"a later release wrote it: v={version}, known={VERSION}")
    if version != VERSION:
        raise ValueError(f"no such version: v={version!r:.40}")
    wrong = _what_is_wrong(table)
    if wrong:
        raise ValueError(wrong)
    return Gap(**table)


_NAMES = [each.name for each in fields(Gap)]


def _what_is_wrong(table: dict[str, Any]) -> str | None:
    if sorted(table) != sorted(_NAMES):
        return f"the members must be {', '.join(_NAMES)}"
    if table["kind"] not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}: kind={table['kind']!r:.40}"
    for name in _TEXTS:
        text = table[name]
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            return f"{name} must be text of at most {_TEXT_MAX} characters: {name}={text!r:.40}"
    for name, limit in _NUMBERS.items():
        number = table[name]
        if type(number) is not int or not 0 <= number < limit:
            return f"{name} must be an int from 0 to {limit - 1}: {name}={number!r:.40}"
    if table["last"] < table["first"]:
        return f"last must not be below first: first={table['first']}, last={table['last']}"
    return None


def _open(path: Path, *, write: bool) -> BinaryIO:
    # Not blocking: a pipe put in its place must not hang us.
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    flags |= os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptMetadata("a link is not followed", path=os.fspath(path)) from None
        if error.errno == errno.EISDIR:
            raise CorruptMetadata("not a regular file", path=os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CorruptMetadata("not a regular file", path=os.fspath(path))
    return open(fd, "r+b" if write else "rb")


@contextlib.contextmanager
def _locked(file: BinaryIO, path: Path) -> Iterator[None]:
    """Nobody else adds meanwhile. The ledger's own lock: the log's writer never waits for it."""
    if not take_lock(file.fileno(), LOCK_SECONDS):
        raise ConcurrentUse(
            f"another process has been writing the ledger for {LOCK_SECONDS} s",
            path=os.fspath(path),
        )
    yield  # closing the file gives the lock back
