"""Book snapshot files: their paths, validation, publication and removal.

A file appears atomically, by a rename after a sync. Files are untrusted when read: one that is
damaged, truncated, of a later release or of another log is reported and skipped, and the next older
one is used. docs/formats/snapshots.md describes the bytes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tapewire.clock import to_ns
from tapewire.errors import ConcurrentUse, CorruptMetadata, InvalidOption, TapewireError
from tapewire.files import path_below, take_lock
from tapewire.protocol.json_file import load as load_bytes
from tapewire.protocol.json_file import store
from tapewire.replay._native import (
    SNAPSHOT_HEADER_BYTES,
    Snapshot,
    decode_header,
    decode_snapshot,
)

if TYPE_CHECKING:
    from tapewire.clock import TimeLike
    from tapewire.protocol.instruments import Instrument

__all__ = [
    "SkippedFile",
    "SnapshotFile",
    "SnapshotInfo",
    "files",
    "info",
    "latest_before",
    "load",
    "markets",
    "only_writer",
    "path_of",
    "remove",
    "write",
]

DIRECTORY = "snapshots"
MAX_FILE_BYTES = 4 << 30
_NAME = re.compile(r"snapshot_(0|[1-9][0-9]{0,19})\.bin")
_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_log = logging.getLogger("tapewire.replay")


class SnapshotFile(NamedTuple):
    """A snapshot file, by its name; its content has not been read."""

    seq: int
    path: Path


class SkippedFile(NamedTuple):
    """A file that was skipped, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class SnapshotInfo:
    """The header of a snapshot.

    Attributes:
        path: The file.
        venue_id: Id of the venue.
        market_id: Id of the market.
        seq: The record of the log after which the book had this state.
        book_mode: "l2" or "l3".
        ingest_start_ns: Time of the last event of the book up to `seq`.
        ingest_end_ns: Time of the record `seq`: the book did not change in between.
        exchange_start_ns: The venue's time of the last event; 0 if it sends none.
        exchange_end_ns: The same.
        book_hash: The `hash()` of the book.
        payload_bytes: Size of the book, which follows the header.
    """

    path: Path
    venue_id: int
    market_id: int
    seq: int
    book_mode: str
    ingest_start_ns: int
    ingest_end_ns: int
    exchange_start_ns: int
    exchange_end_ns: int
    book_hash: str
    payload_bytes: int


def markets(log: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """Return ``(venue_id, market_id)`` of every instrument with a directory of snapshots."""
    root = Path(log) / DIRECTORY
    return [
        (int(venue), int(market))
        for venue in _id_directories(root)
        for market in _id_directories(path_below(Path(log), DIRECTORY, venue))
    ]


def files(log: str | os.PathLike[str], venue_id: int, market_id: int) -> list[SnapshotFile]:
    """Return the snapshots of an instrument, oldest first, without reading them."""
    directory = _directory(log, venue_id, market_id)
    return [SnapshotFile(seq, directory / _name(seq)) for seq in _seqs(directory)]


def path_of(log: str | os.PathLike[str], venue_id: int, market_id: int, seq: int) -> Path:
    """Return the path of a snapshot, which need not exist."""
    return _directory(log, venue_id, market_id) / _name(seq)


def info(path: str | os.PathLike[str]) -> SnapshotInfo:
    """Read the header of a snapshot; the book is not read.

    Raises:
        CorruptMetadata: The file is not a snapshot, damaged, truncated, or at another path than
            its header states.
        UnsupportedVersion: A later release wrote it.
    """
    path = Path(path)
    with _about(path), contextlib.closing(_open(path)) as file:
        size = os.fstat(file.fileno()).st_size
        header = decode_header(file.read(SNAPSHOT_HEADER_BYTES), size)
        return SnapshotInfo(path, **_check_path(path, header))


def load(
    path: str | os.PathLike[str],
    instrument: Instrument | None = None,
    *,
    on_gap: str = "resync",
) -> Snapshot:
    """Read a snapshot with its book, whose hash is checked against the header.

    Args:
        path: The file.
        instrument: The expected instrument, scales and rules; None takes them from the file.
        on_gap: How the book handles later gaps: see `L2Book`.

    Raises:
        CorruptMetadata: The file is not a snapshot, damaged, truncated, or at another path than
            its header states.
        UnsupportedVersion: A later release wrote it.
        InvalidOption: The scales or rules differ from those of `instrument`.
    """
    path = Path(path)
    with _about(path):
        content = load_bytes(os.fspath(path), MAX_FILE_BYTES)
        snapshot = decode_snapshot(content, instrument, on_gap=on_gap)
        _check_path(path, snapshot.header)
    return snapshot


def latest_before(
    log: str | os.PathLike[str],
    venue_id: int,
    market_id: int,
    *,
    seq: int | None = None,
    time: TimeLike | None = None,
    instrument: Instrument | None = None,
    on_gap: str = "resync",
    findings: list[SkippedFile] | None = None,
) -> Snapshot | None:
    """Return the latest valid snapshot at or before a record or a time, or None.

    Args:
        log: Directory of the log.
        venue_id: Id of the venue.
        market_id: Id of the market.
        seq: At or before this record.
        time: At or before this time, by the timestamp of the snapshot's record.
        instrument: The expected instrument, scales and rules.
        on_gap: As for `load`.
        findings: A list to which skipped files are added. They are also logged as warnings.
    """
    if seq is not None and time is not None:
        raise InvalidOption(f"pass seq or time, not both: seq={seq}, time={time}")
    until_ns = None if time is None else to_ns(time)
    directory = _directory(log, venue_id, market_id)
    for snapshot_seq in reversed(_seqs(directory)):
        if seq is not None and snapshot_seq > seq:
            continue
        path = directory / _name(snapshot_seq)
        try:
            if until_ns is not None and info(path).ingest_end_ns > until_ns:
                continue
            return load(path, instrument, on_gap=on_gap)
        except FileNotFoundError:
            continue  # removed by retention meanwhile
        except (TapewireError, OSError) as error:
            report(findings, path, str(error))
    return None


def report(findings: list[SkippedFile] | None, path: Path, why: str) -> None:
    """Report that a snapshot is skipped."""
    _log.warning("snapshot skipped: %s", why)
    if findings is not None:
        findings.append(SkippedFile(os.fspath(path), why))


def write(
    log: str | os.PathLike[str], venue_id: int, market_id: int, seq: int, content: bytes
) -> Path:
    """Publish a snapshot atomically and durably. Only one process may do so."""
    directory = _directory(log, venue_id, market_id)
    _make(directory, Path(log))
    path = directory / _name(seq)
    with _opened(directory) as fd:
        store(os.fspath(path), content, fd)
    return path


def store_beside(log: str | os.PathLike[str], name: str, content: bytes) -> None:
    """Replace a small file in the directory of the snapshots durably."""
    directory = path_below(Path(log), DIRECTORY)
    _make(directory, Path(log))
    with _opened(directory) as fd:
        store(os.fspath(directory / name), content, fd)


def remove(file: SnapshotFile) -> None:
    """Remove a snapshot, if it exists."""
    file.path.unlink(missing_ok=True)


def remove_temporary(log: str | os.PathLike[str]) -> int:
    """Remove temporary files of a killed snapshotter; only its successor may call this."""
    count = 0
    for venue_id, market_id in markets(log):
        directory = _directory(log, venue_id, market_id)
        for name in os.listdir(directory):
            if name.endswith(".bin.tmp") and _NAME.fullmatch(name.removesuffix(".tmp")):
                (directory / name).unlink(missing_ok=True)
                count += 1
    return count


@contextlib.contextmanager
def only_writer(log: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of the only process that writes snapshots of this log.

    Raises:
        ConcurrentUse: Another process holds it, under any reader's name.
    """
    directory = path_below(Path(log), DIRECTORY)
    _make(directory, Path(log))
    with _opened(directory) as fd:
        if not take_lock(fd):
            raise ConcurrentUse(
                "another snapshotter of this log is running",
                path=os.fspath(directory),
                hint="a log needs only one",
            )
        yield  # closing the descriptor releases the lock


def _directory(log: str | os.PathLike[str], venue_id: int, market_id: int) -> Path:
    return path_below(Path(log), DIRECTORY, str(int(venue_id)), str(int(market_id)))


def _name(seq: int) -> str:
    return f"snapshot_{seq}.bin"


def _seqs(directory: Path) -> list[int]:
    """Return the sequence numbers of the snapshots in a directory, sorted, without opening them."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def _id_directories(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = [e.name for e in entries if _ID.fullmatch(e.name) and e.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names, key=int)


def _check_path(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Return the header; raise `CorruptMetadata` if it does not match the path."""
    name = _NAME.fullmatch(path.name)
    ids = (header["venue_id"], header["market_id"], header["seq"])
    in_path = (path.parent.parent.name, path.parent.name, name[1] if name else path.name)
    if tuple(map(str, ids)) != in_path:
        raise CorruptMetadata(
            f"the header does not match the path: venue_id={ids[0]}, market_id={ids[1]}, "
            f"seq_num={ids[2]}",
            hint="the file was moved or renamed: remove it",
        )
    return header


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    """Add the path to errors that have none."""
    try:
        yield
    except TapewireError as error:
        if error.path is None:
            error.path = os.fspath(path)
        raise


def _open(path: Path) -> BinaryIO:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return open(path, "rb", opener=lambda name, _: os.open(name, flags))


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _make(directory: Path, log: Path) -> None:
    """Create a directory and its parents below the log, private and durable."""
    if directory.is_dir():
        return
    missing = [directory, *directory.parents]
    for new in reversed(missing[: missing.index(log)]):
        with contextlib.suppress(FileExistsError):
            new.mkdir(mode=0o700)
            with _opened(new.parent) as fd:
                os.fsync(fd)
