"""Book snapshots as files: where they lie, which to believe, how they appear and go.

A file appears whole or not at all, by a rename after a sync. Whoever reads them trusts nothing:
what is damaged, cut short, of a later release or of another log is reported and passed over, and
the next older one is taken. The bytes are in docs/formats/snapshots.md.
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
    "remove",
    "write",
]

FOLDER = "snapshots"
MAX_FILE_BYTES = 4 << 30
_NAME = re.compile(r"snapshot_(0|[1-9][0-9]{0,19})\.bin")
_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_log = logging.getLogger("tapewire.replay")


class SnapshotFile(NamedTuple):
    """A file by its name: nothing in it has been looked at."""

    seq: int
    path: Path


class SkippedFile(NamedTuple):
    """A file that was passed over, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class SnapshotInfo:
    """What the header of a snapshot says.

    Attributes:
        path: The file.
        venue_id: Of the instrument.
        market_id: Of the instrument.
        seq: The record of the log behind which the book was so.
        book_mode: "l2" or "l3".
        ingest_start_ns: Time of the last event of the book up to there.
        ingest_end_ns: Time of the record `seq`: the book did not change in between.
        exchange_start_ns: The venue's time of the last event; 0 where it gives none.
        exchange_end_ns: The same.
        book_hash: Of the book, as `hash()` gives it.
        payload_bytes: Of the book, behind the header.
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
    """``(venue_id, market_id)`` of every instrument that the log has a folder of snapshots for."""
    root = Path(log) / FOLDER
    return [
        (int(venue), int(market))
        for venue in _folders(root)
        for market in _folders(path_below(Path(log), FOLDER, venue))
    ]


def files(log: str | os.PathLike[str], venue_id: int, market_id: int) -> list[SnapshotFile]:
    """The snapshots of an instrument by their names, oldest first; none when there is no folder."""
    folder = _folder(log, venue_id, market_id)
    return [SnapshotFile(seq, folder / _name(seq)) for seq in _seqs(folder)]


def info(path: str | os.PathLike[str]) -> SnapshotInfo:
    """What the header of the file says; its book is not looked at.

    Raises:
        CorruptMetadata: It is no snapshot, is damaged, cut short, or lies in the wrong place.
        UnsupportedVersion: A later release wrote it.
    """
    path = Path(path)
    with _about(path), contextlib.closing(_open(path)) as file:
        size = os.fstat(file.fileno()).st_size
        header = decode_header(file.read(SNAPSHOT_HEADER_BYTES), size)
        return SnapshotInfo(path, **_in_place(path, header))


def load(
    path: str | os.PathLike[str],
    instrument: Instrument | None = None,
    *,
    on_gap: str = "resync",
) -> Snapshot:
    """A snapshot and its book, whose hash is the one that the header says.

    Args:
        path: The file.
        instrument: What it must be of, with its scales and rules; None takes them from the file.
        on_gap: What the book does when it goes on and something is missing: see `L2Book`.

    Raises:
        CorruptMetadata: It is no snapshot, is damaged, cut short, or lies in the wrong place.
        UnsupportedVersion: A later release wrote it.
        InvalidOption: It is of other scales or rules.
    """
    path = Path(path)
    with _about(path):
        content = load_bytes(os.fspath(path), MAX_FILE_BYTES)
        snapshot = decode_snapshot(content, instrument, on_gap=on_gap)
        _in_place(path, snapshot.header)
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
    """The latest snapshot at or before a record or a time that can be believed; None without one.

    Args:
        log: Folder of the log.
        venue_id: Of the instrument.
        market_id: Of the instrument.
        seq: At or before this record.
        time: At or before this time of the tape, by the time of the snapshot's own record.
        instrument: What it must be of, with its scales and rules.
        on_gap: As for `load`.
        findings: Gets what was passed over, which is logged as a warning in any case.
    """
    if seq is not None and time is not None:
        raise InvalidOption("give seq or time, not both")
    until_ns = None if time is None else to_ns(time)
    folder = _folder(log, venue_id, market_id)
    for number in reversed(_seqs(folder)):
        if seq is not None and number > seq:
            continue
        path = folder / _name(number)
        try:
            if until_ns is not None and info(path).ingest_end_ns > until_ns:
                continue
            return load(path, instrument, on_gap=on_gap)
        except FileNotFoundError:
            continue  # retention was faster
        except (TapewireError, OSError) as error:
            report(findings, path, str(error))
    return None


def report(findings: list[SkippedFile] | None, path: Path, why: str) -> None:
    """Say that a snapshot is passed over."""
    _log.warning("snapshot passed over: %s", why)
    if findings is not None:
        findings.append(SkippedFile(os.fspath(path), why))


def write(
    log: str | os.PathLike[str], venue_id: int, market_id: int, seq: int, content: bytes
) -> Path:
    """Publish a snapshot: on disk, whole, when this returns. Only one process may do so."""
    folder = _folder(log, venue_id, market_id)
    _make(folder, Path(log))
    path = folder / _name(seq)
    with _opened(folder) as fd:
        store(os.fspath(path), content, fd)
    return path


def store_beside(log: str | os.PathLike[str], name: str, content: bytes) -> None:
    """Replace a small file in the folder of the snapshots, for good."""
    folder = path_below(Path(log), FOLDER)
    _make(folder, Path(log))
    with _opened(folder) as fd:
        store(os.fspath(folder / name), content, fd)


def remove(file: SnapshotFile) -> None:
    """Take a snapshot away. Not there: fine."""
    file.path.unlink(missing_ok=True)


def remove_temporary(log: str | os.PathLike[str]) -> int:
    """Take away what a killed snapshotter left half-written; only its successor may call this."""
    count = 0
    for venue_id, market_id in markets(log):
        folder = _folder(log, venue_id, market_id)
        for name in os.listdir(folder):
            if name.endswith(".bin.tmp") and _NAME.fullmatch(name.removesuffix(".tmp")):
                (folder / name).unlink(missing_ok=True)
                count += 1
    return count


@contextlib.contextmanager
def only_writer(log: str | os.PathLike[str]) -> Iterator[None]:
    """Nobody else writes snapshots of this log meanwhile.

    Raises:
        ConcurrentUse: Somebody does, under whatever name.
    """
    folder = path_below(Path(log), FOLDER)
    _make(folder, Path(log))
    with _opened(folder) as fd:
        if not take_lock(fd):
            raise ConcurrentUse(
                "another snapshotter is at work", path=os.fspath(folder), hint="one does for a log"
            )
        yield  # closing gives it back


def _folder(log: str | os.PathLike[str], venue_id: int, market_id: int) -> Path:
    return path_below(Path(log), FOLDER, str(int(venue_id)), str(int(market_id)))


def _name(seq: int) -> str:
    return f"snapshot_{seq}.bin"


def _seqs(folder: Path) -> list[int]:
    """Of the snapshots in a folder, rising: a day may have thousands, of which one is opened."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if _ID.fullmatch(e.name) and e.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names, key=int)


def _in_place(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    """The header, when it says what the path says."""
    name = _NAME.fullmatch(path.name)
    said = (header["venue_id"], header["market_id"], header["seq"])
    place = (path.parent.parent.name, path.parent.name, name[1] if name else path.name)
    if tuple(map(str, said)) != place:
        raise CorruptMetadata(
            f"the header is of another place: venue_id={said[0]}, market_id={said[1]}, "
            f"seq_num={said[2]}",
            hint="files keep their folder and name; remove it",
        )
    return header


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    """Errors inside say which file they are about."""
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
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _make(folder: Path, log: Path) -> None:
    """The folder, and those on the way below the log, private, and there after a power cut."""
    if folder.is_dir():
        return
    missing = [folder, *folder.parents]
    for new in reversed(missing[: missing.index(log)]):
        with contextlib.suppress(FileExistsError):
            new.mkdir(mode=0o700)
            with _opened(new.parent) as fd:
                os.fsync(fd)
