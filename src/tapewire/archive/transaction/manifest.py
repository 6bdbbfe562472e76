"""The manifest of a batch: what will be in the archive, written before any of it is.

``_tapewire/batches/<writer>/<batch>.decided.json`` appears in one rename: that is the decision.
From then on the batch is published, by this process or a later one, and ends as ``<batch>.json``,
by which the same batch is recognised. docs/formats/sink-manifest.md has its members.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tapewire.bus.names import check_name
from tapewire.errors import InvalidName
from tapewire.files import directories_below, make_directories, path_below, sync
from tapewire.protocol.json_file import (
    InvalidField,
    check_format,
    load,
    locked_directory,
    members,
    parse_checked,
    store,
)

__all__ = ["Action", "Manifest", "Manifests"]

FORMAT = "tapewire-sink"
VERSION = 1
MAX_FILE_BYTES = 256 << 20
KEPT = 100  # manifests of a writer's numbered batches: as many as Spark's checkpoint keeps
ONCE = "once"  # the writer of batches without a writer's name
_DECIDED = ".decided.json"
_PUBLISHED = ".json"
_KINDS = ("create", "append", "replace")
_REMEDY = "restore the file; without it the progress of its batch is unknown"


@dataclass(frozen=True)
class Action:
    """What to do with one log.

    Attributes:
        log: Its path below the archive.
        kind: "create": the staged queue becomes the log. "append": its records are appended.
            "replace": it replaces the log.
        staged: The queue with the records, below the job's directory.
        records: Number of records in the staged queue.
        next_seq: "append": the log's next sequence number before.
        keep_seq: "append": records keep their sequence numbers; else the log assigns them from
            `next_seq` on.
    """

    log: str
    kind: str
    staged: str
    records: int
    next_seq: int = 0
    keep_seq: bool = True


@dataclass(frozen=True)
class Manifest:
    """A batch that was decided.

    Attributes:
        writer: Name of its writer.
        batch: Which of the writer's batches it is.
        job: The job whose directory has the staged queues.
        rows: Number of rows in the DataFrame.
        digest: Digest of these rows in any order; empty if the batch need not be recognised.
        actions: One action for each log.
    """

    writer: str
    batch: str
    job: str
    rows: int
    digest: str
    actions: tuple[Action, ...]

    def same_rows(self, rows: int, digest: str) -> bool:
        """Whether a batch has the rows of this one."""
        return (self.rows, self.digest) == (rows, digest)


class Manifests:
    """The manifests of an archive. To change them, hold the archive's commit lock.

    Example:
        >>> manifests = Manifests(tmp)
        >>> manifests.decide(Manifest("bars", "7", "job-1", 0, "00", ()))
        >>> [one.batch for one in manifests.decided()]
        ['7']
        >>> manifests.published(manifests.find("bars", "7"))
        >>> list(manifests.decided()), manifests.newest("bars")
        ([], 7)
    """

    def __init__(self, control: Path) -> None:
        self._directory = path_below(control, "batches")

    def __repr__(self) -> str:
        return f"<Manifests {os.fspath(self._directory)!r}>"

    def decide(self, manifest: Manifest) -> None:
        """Store the manifest, durably: the batch will be published, whatever happens."""
        directory = self._of(manifest.writer)
        if not directory.is_dir():
            make_directories(directory)
            sync(directory.parent)
            sync(directory.parent.parent)
        document = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
        text = json.dumps(document, indent=1).encode() + b"\n"
        path = os.fspath(directory / f"{manifest.batch}{_DECIDED}")
        with locked_directory(os.fspath(directory), path) as directory_fd:
            store(path, text, directory_fd)

    def published(self, manifest: Manifest) -> None:
        """Mark a batch as completely published; remove manifests that are no longer needed."""
        directory = self._of(manifest.writer)
        decided = directory / f"{manifest.batch}{_DECIDED}"
        if manifest.digest:
            os.rename(decided, directory / f"{manifest.batch}{_PUBLISHED}")
            self._forget_before(directory, manifest.batch)
        else:
            decided.unlink()
        sync(directory)

    def decided(self) -> Iterator[Manifest]:
        """The batches that are decided and not completely published."""
        for writer in directories_below(self._directory):
            for name in sorted(_names(self._directory / writer)):
                if name.endswith(_DECIDED):
                    yield _read(self._directory / writer / name)

    def find(self, writer: str, batch: str) -> Manifest | None:
        """The manifest of a batch, or None."""
        for ending in (_PUBLISHED, _DECIDED):
            with contextlib.suppress(FileNotFoundError):
                return _read(self._of(writer) / f"{batch}{ending}")
        return None

    def newest(self, writer: str) -> int | None:
        """The highest batch number of a writer, or None if no batch has a number."""
        return max(_numbers(self._of(writer)), default=None)

    def _of(self, writer: str) -> Path:
        return path_below(self._directory, check_name("writer", writer))

    def _forget_before(self, directory: Path, batch: str) -> None:
        if batch.isdecimal():
            for number in _numbers(directory):
                if number <= int(batch) - KEPT:
                    (directory / f"{number}{_PUBLISHED}").unlink(missing_ok=True)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _numbers(directory: Path) -> Iterator[int]:
    for name in _names(directory):
        stem = name.removesuffix(_DECIDED).removesuffix(_PUBLISHED)
        if name.endswith(_PUBLISHED) and stem.isascii() and stem.isdecimal():
            yield int(stem)


def _read(path: Path) -> Manifest:
    """Read a manifest and check every member: its names become paths."""
    text = load(os.fspath(path), MAX_FILE_BYTES)
    return parse_checked(text, os.fspath(path), _checked, _REMEDY)


def _checked(value: Any) -> Manifest:
    document = check_format(
        value, FORMAT, VERSION, "finish the batch with that release, or upgrade"
    )
    members(
        document,
        "the document",
        format=str,
        version=int,
        writer=str,
        batch=str,
        job=str,
        rows=int,
        digest=str,
        actions=list,
    )
    actions = tuple(_action(value, i) for i, value in enumerate(document["actions"]))
    for name in ("writer", "batch", "job"):
        _name(name, document[name])
    if document["rows"] < 0:
        raise InvalidField(f"rows must not be negative: rows={document['rows']}")
    return Manifest(
        document["writer"],
        document["batch"],
        document["job"],
        document["rows"],
        document["digest"],
        actions,
    )


def _action(value: Any, i: int) -> Action:
    where = f"actions[{i}]"
    if isinstance(value, dict) and not isinstance(value.get("keep_seq"), bool):
        raise InvalidField(f"{where}.keep_seq must be true or false")
    kept = value.pop("keep_seq") if isinstance(value, dict) else True
    members(value, where, log=str, kind=str, staged=str, records=int, next_seq=int)
    if value["kind"] not in _KINDS:
        raise InvalidField(
            f"{where}.kind must be one of {', '.join(_KINDS)}: kind={value['kind']!r:.60}"
        )
    for name in ("log", "staged"):
        for part in value[name].split("/"):
            _name(f"{where}.{name}", part)
    for name in ("records", "next_seq"):
        if not 0 <= value[name] < 2**64:
            raise InvalidField(f"{where}.{name} must fit 64 bits: {name}={value[name]}")
    return Action(**value, keep_seq=kept)


def _name(where: str, text: str) -> None:
    try:
        check_name(where, text)
    except InvalidName as error:
        raise InvalidField(str(error)) from None
