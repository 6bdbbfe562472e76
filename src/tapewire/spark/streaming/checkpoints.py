"""Saved states of replayed views: what a micro-batch leaves for the next one.

A state is a hint, like a seek index: with it a micro-batch begins where the last one ended; without
it, or when it is damaged, the batch is rebuilt from an older one or from the log, and has the same
rows. So nothing here is believed that does not prove itself, and nothing here can make a query
fail but a folder that cannot be written.

A file is ``<folder>/<instrument>-<digest>/<time>-<digest>.state``. The first digest is of the
instrument and of the query with its options, so that two queries never take each other's; the
second of the place in the logs that the state belongs to. It appears whole or not at all. Beside
them lies ``origin.json``: the numbers at which the query has begun.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tapewire.errors import CorruptMetadata, InvalidOption, TapewireError
from tapewire.protocol.json_file import Wrong, load, members, parse_checked, short, store
from tapewire.spark.streaming.offsets import SEQ_MOST

__all__ = ["KEPT", "CheckpointMark", "Checkpoints", "FoundCheckpoint", "check_folder"]

KEPT = 2  # states that stay behind the committed place: the newest may turn out to be damaged

_MAGIC = b"tapewire state 1\n"
_MAX_BYTES = 4 << 30
_HEADER_MOST = 1 << 20
_ORIGIN = "origin.json"
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})\.state")
_REMEDY = "remove it: the state is built again from the log"
_log = logging.getLogger("tapewire.spark")


@dataclass(frozen=True)
class CheckpointMark:
    """A place in the tape of one instrument.

    Attributes:
        time_ns: Rows before this have been given.
        logs: Name of each of its logs to the number that is read next.
    """

    time_ns: int
    logs: Mapping[str, int]

    @property
    def file_name(self) -> str:
        """Of the state that belongs here."""
        text = json.dumps([self.time_ns, sorted(self.logs.items())])
        return f"{self.time_ns:020d}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.state"

    def is_before(self, other: CheckpointMark) -> bool:
        """Whether a state of here can be taken on to there."""
        return self.time_ns <= other.time_ns and all(
            number <= other.logs.get(name, -1) for name, number in self.logs.items()
        )


def check_folder(view: str, folder: str | None) -> str:
    """The folder of a query's states, which its view must have.

    Raises:
        InvalidOption: None is given, or it is something else.
    """
    if folder is None:
        raise InvalidOption(
            f"a query over {view} needs a folder for the state of its books",
            hint='give it one that is its own: option("state", DIR)',
        )
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InvalidOption(
            f"the states of a query need a folder, this is none: state={folder}",
            hint='name another: option("state", DIR)',
        )
    return folder


class FoundCheckpoint(NamedTuple):
    """A state that proved itself."""

    mark: CheckpointMark
    state: bytes


class Checkpoints:
    """The states of one query, for all its instruments.

    Args:
        folder: Where they lie: of this query alone, and seen by all workers.
        meaning: What a row depends on beside the logs (view, features, levels, …). A state of
            another meaning is not seen.
        check: Raises where a state, whole as it is, is of another release.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        meaning: Mapping[str, Any],
        check: Callable[[bytes], object] = len,
    ) -> None:
        self.folder = Path(os.path.abspath(os.fspath(folder)))
        text = json.dumps(meaning, sort_keys=True)
        self._meaning = hashlib.sha256(text.encode()).hexdigest()
        self._check = check

    def save(self, unit: str, mark: CheckpointMark, state: bytes) -> Path:
        """Keep a state: on disk, whole, when this returns. Twice, or by two at once, is fine."""
        header = {
            "unit": unit,
            "meaning": self._meaning,
            "time_ns": mark.time_ns,
            "logs": dict(sorted(mark.logs.items())),
            "bytes": len(state),
            "sha256": hashlib.sha256(state).hexdigest(),
        }
        return self._store(
            unit, mark.file_name, _MAGIC + json.dumps(header).encode() + b"\n" + state
        )

    def begin(self, unit: str, logs: Mapping[str, int]) -> None:
        """Note the numbers at which a query begins: without a state it must begin there again."""
        self._store(unit, _ORIGIN, json.dumps(dict(sorted(logs.items()))).encode())

    def began(self, unit: str) -> Mapping[str, int]:
        """What `begin` has noted; nothing where that is lost."""
        path = os.fspath(self._of(unit) / _ORIGIN)

        def check(document: Any) -> dict[str, int]:
            if not isinstance(document, dict) or not _are_seqs(document.values()):
                raise Wrong(f"not sequence numbers of logs: {short(document)}")
            return document

        try:
            return parse_checked(load(path, _HEADER_MOST), path, check, _REMEDY)
        except FileNotFoundError:
            return {}
        except (TapewireError, OSError) as error:
            _log.warning("passed over: %s", error)
            return {}

    def _store(self, unit: str, name: str, content: bytes) -> Path:
        folder = self._of(unit)
        # One by one: `parents` would have the user's own open to all.
        for each in (*reversed(folder.parents), folder):
            if not each.is_dir():
                each.mkdir(mode=0o700, exist_ok=True)
        path = folder / name
        # A task that Spark runs a second time writes beside the first: each has its own file.
        own = f"{path}.{uuid.uuid4().hex}"
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            store(own, content, fd)
            os.replace(own, path)
            os.fsync(fd)
        finally:
            os.close(fd)
        return path

    def find(self, unit: str, mark: CheckpointMark) -> FoundCheckpoint | None:
        """The latest state at or before a place; None when there is none to be believed."""
        for name in reversed(self._names(unit)):
            if int(name[:20]) > mark.time_ns:
                continue
            try:
                found = self._load(unit, self._of(unit) / name)
            except FileNotFoundError:
                continue  # pruned just now
            except (TapewireError, OSError) as error:
                _log.warning("state passed over: %s", error)
                continue
            if found is not None and found.mark.is_before(mark):
                return found
        return None

    def prune(self, unit: str, mark: CheckpointMark) -> FoundCheckpoint | None:
        """Take away states that nobody asks for once `mark` is committed.

        The latest `KEPT` at or before it stay, and all behind it.

        Returns:
            The oldest that is left to begin from; None: there is none, and whoever loses the newest
            begins at the start of the log.
        """
        kept: list[FoundCheckpoint] = []
        folder = self._of(unit)
        for name in reversed(self._names(unit)):
            path = folder / name
            if int(name[:20]) > mark.time_ns:
                continue
            if len(kept) < KEPT:
                # What is damaged is no place to begin from, and does not count.
                with contextlib.suppress(TapewireError, OSError):
                    found = self._load(unit, path)
                    if found is not None and found.mark.is_before(mark):
                        kept.append(found)
                        continue
            path.unlink(missing_ok=True)
        self._sweep(folder)
        return kept[-1] if len(kept) == KEPT else None

    def _load(self, unit: str, path: Path) -> FoundCheckpoint | None:
        """A checked state; None when it is whole and of another meaning."""
        content = load(os.fspath(path), _MAX_BYTES)
        end = content.find(b"\n", len(_MAGIC), len(_MAGIC) + _HEADER_MOST)
        if not content.startswith(_MAGIC) or end < 0:
            raise CorruptMetadata("not a state", path=os.fspath(path), hint=_REMEDY)
        state = content[end + 1 :]

        def check(document: Any) -> FoundCheckpoint | None:
            members(
                document,
                "the header",
                unit=str,
                meaning=str,
                time_ns=int,
                logs=dict,
                bytes=int,
                sha256=str,
            )
            logs = document["logs"]
            if not _are_seqs(logs.values()):
                raise Wrong(f"logs must have sequence numbers: logs={short(logs)}")
            mark = CheckpointMark(document["time_ns"], logs)
            if document["unit"] != unit or mark.time_ns < 0 or mark.file_name != path.name:
                raise Wrong(f"it is of another place: unit={short(document['unit'])}")
            if document["bytes"] != len(state):
                raise Wrong(f"cut short: bytes={len(state)}, expected={document['bytes']}")
            if document["sha256"] != hashlib.sha256(state).hexdigest():
                raise Wrong("the checksum is wrong")
            if document["meaning"] != self._meaning:
                return None
            self._check(state)
            return FoundCheckpoint(mark, state)

        return parse_checked(content[len(_MAGIC) : end], os.fspath(path), check, _REMEDY)

    def _of(self, unit: str) -> Path:
        """The folder of an instrument: readable, and never a name that leads elsewhere."""
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", unit)[:64]
        digest = hashlib.sha256(f"{unit}\n{self._meaning}".encode()).hexdigest()[:12]
        return self.folder / f"{readable}-{digest}"

    def _names(self, unit: str) -> list[str]:
        try:
            names = os.listdir(self._of(unit))
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _NAME.fullmatch(name))

    def _sweep(self, folder: Path) -> None:
        """Take away what killed tasks left half-written, before the states that are left."""
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(folder)
            oldest = min((name for name in names if _NAME.fullmatch(name)), default="")
            for name in names:
                if not _NAME.fullmatch(name) and _NAME.match(name) and name < oldest:
                    (folder / name).unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"<Checkpoints in {os.fspath(self.folder)!r}>"


def _are_seqs(values: Iterable[Any]) -> bool:
    return all(type(value) is int and 0 <= value <= SEQ_MOST for value in values)
