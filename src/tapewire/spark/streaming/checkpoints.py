"""Saved states of replayed views, from which the next micro-batch continues.

A state is a hint, like a seek index: with it, a micro-batch starts where the last one ended; if it
is missing or damaged, an older state or the log is replayed instead, with the same rows. So every
state is verified when it is loaded, and a query fails only if the directory cannot be written.

A file is ``<directory>/<instrument>-<digest>/<time>-<digest>.state``. The first digest covers the
instrument and the options of the query, so that queries never load each other's states; the second
covers the position in the logs. Files appear complete or not at all. ``origin.json`` next to them
holds the sequence numbers at which the query started.
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
from tapewire.protocol.json_file import InvalidField, load, members, parse_checked, short, store
from tapewire.spark.streaming.offsets import MAX_NEXT_SEQ

__all__ = ["KEPT", "CheckpointMark", "Checkpoints", "FoundCheckpoint", "check_state_directory"]

KEPT = 2  # states kept at or before the committed position: the newest may be damaged

_MAGIC = b"tapewire state 1\n"
_MAX_BYTES = 4 << 30
_MAX_HEADER_BYTES = 1 << 20
_ORIGIN = "origin.json"
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})\.state")
_REMEDY = "remove it: the state is rebuilt from the log"
_log = logging.getLogger("tapewire.spark")


@dataclass(frozen=True)
class CheckpointMark:
    """A position in the timeline of one instrument.

    Attributes:
        time_ns: Rows before this time were returned.
        logs: Name of each of its logs to the sequence number that is read next.
    """

    time_ns: int
    logs: Mapping[str, int]

    @property
    def file_name(self) -> str:
        """File name of the state at this position."""
        text = json.dumps([self.time_ns, sorted(self.logs.items())])
        return f"{self.time_ns:020d}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.state"

    def is_before(self, other: CheckpointMark) -> bool:
        """Whether replaying from a state at this position can reach `other`."""
        return self.time_ns <= other.time_ns and all(
            number <= other.logs.get(name, -1) for name, number in self.logs.items()
        )


def check_state_directory(view: str, directory: str | None) -> None:
    """Check the option `state`, which a query over `view` requires.

    Raises:
        InvalidOption: It is missing, or the path is not a directory.
    """
    if directory is None:
        raise InvalidOption(
            f"a query over {view} needs a directory for the state of its books",
            hint='give each query its own: option("state", DIR)',
        )
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise InvalidOption(
            f"not a directory: state={directory}",
            hint='name a directory: option("state", DIR)',
        )


class FoundCheckpoint(NamedTuple):
    """A state that was loaded and verified."""

    mark: CheckpointMark
    state: bytes


class Checkpoints:
    """The states of one query, for all its instruments.

    Args:
        directory: Where the states are stored; all workers must see it.
        meaning: The options that rows depend on (view, features, levels, …). States saved with
            other options are ignored.
        check: Raises if an undamaged state was saved by another release.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        meaning: Mapping[str, Any],
        check: Callable[[bytes], object] = len,
    ) -> None:
        self.directory = Path(os.path.abspath(os.fspath(directory)))
        text = json.dumps(meaning, sort_keys=True)
        self._meaning = hashlib.sha256(text.encode()).hexdigest()
        self._check = check

    def save(self, unit: str, mark: CheckpointMark, state: bytes) -> Path:
        """Save a state durably. Repeated or concurrent calls for the same mark are allowed."""
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

    def save_origin(self, unit: str, logs: Mapping[str, int]) -> None:
        """Save the sequence numbers at which a query starts: without a state it restarts there."""
        self._store(unit, _ORIGIN, json.dumps(dict(sorted(logs.items()))).encode())

    def load_origin(self, unit: str) -> Mapping[str, int]:
        """The sequence numbers passed to `save_origin`; empty if the file is lost or damaged."""
        path = os.fspath(self._directory_of(unit) / _ORIGIN)

        def check(document: Any) -> dict[str, int]:
            if not isinstance(document, dict) or not _are_seqs(document.values()):
                raise InvalidField(f"not sequence numbers of logs: {short(document)}")
            return document

        try:
            return parse_checked(load(path, _MAX_HEADER_BYTES), path, check, _REMEDY)
        except FileNotFoundError:
            return {}
        except (TapewireError, OSError) as error:
            _log.warning("origin ignored: %s", error)
            return {}

    def _store(self, unit: str, name: str, content: bytes) -> Path:
        directory = self._directory_of(unit)
        # One by one: `mkdir(parents=True)` would not apply the mode to parents.
        for each in (*reversed(directory.parents), directory):
            if not each.is_dir():
                each.mkdir(mode=0o700, exist_ok=True)
        path = directory / name
        # Spark may run a task a second time while the first runs: each attempt has its own file.
        temporary = f"{path}.{uuid.uuid4().hex}"
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            store(temporary, content, fd)
            os.replace(temporary, path)
            os.fsync(fd)
        finally:
            os.close(fd)
        return path

    def find(self, unit: str, mark: CheckpointMark) -> FoundCheckpoint | None:
        """The latest valid state at or before a position; None if there is none."""
        for name in reversed(self._names(unit)):
            if int(name[:20]) > mark.time_ns:
                continue
            try:
                found = self._load(unit, self._directory_of(unit) / name)
            except FileNotFoundError:
                continue  # pruned concurrently
            except (TapewireError, OSError) as error:
                _log.warning("state ignored: %s", error)
                continue
            if found is not None and found.mark.is_before(mark):
                return found
        return None

    def prune(self, unit: str, mark: CheckpointMark) -> FoundCheckpoint | None:
        """Delete the states that are not needed once `mark` is committed.

        The latest `KEPT` states at or before it stay, and all after it.

        Returns:
            The oldest of the `KEPT` states; None if there are fewer, so that losing the newest one
            means to start again at the beginning of the log.
        """
        kept: list[FoundCheckpoint] = []
        directory = self._directory_of(unit)
        for name in reversed(self._names(unit)):
            path = directory / name
            if int(name[:20]) > mark.time_ns:
                continue
            if len(kept) < KEPT:
                # Damaged states do not count.
                with contextlib.suppress(TapewireError, OSError):
                    found = self._load(unit, path)
                    if found is not None and found.mark.is_before(mark):
                        kept.append(found)
                        continue
            path.unlink(missing_ok=True)
        self._delete_temporary_files(directory)
        return kept[-1] if len(kept) == KEPT else None

    def _load(self, unit: str, path: Path) -> FoundCheckpoint | None:
        """A verified state; None if it is undamaged but was saved with other options."""
        content = load(os.fspath(path), _MAX_BYTES)
        end = content.find(b"\n", len(_MAGIC), len(_MAGIC) + _MAX_HEADER_BYTES)
        if not content.startswith(_MAGIC) or end < 0:
            raise CorruptMetadata("not a saved state", path=os.fspath(path), hint=_REMEDY)
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
                raise InvalidField(f"logs must have sequence numbers: logs={short(logs)}")
            mark = CheckpointMark(document["time_ns"], logs)
            if document["unit"] != unit or mark.time_ns < 0 or mark.file_name != path.name:
                raise InvalidField(
                    f"it belongs to another position: unit={short(document['unit'])}"
                )
            if document["bytes"] != len(state):
                raise InvalidField(f"truncated: bytes={len(state)}, expected={document['bytes']}")
            if document["sha256"] != hashlib.sha256(state).hexdigest():
                raise InvalidField("checksum mismatch")
            if document["meaning"] != self._meaning:
                return None
            self._check(state)
            return FoundCheckpoint(mark, state)

        return parse_checked(content[len(_MAGIC) : end], os.fspath(path), check, _REMEDY)

    def _directory_of(self, unit: str) -> Path:
        """The directory of an instrument: a readable name that cannot leave `directory`."""
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", unit)[:64]
        digest = hashlib.sha256(f"{unit}\n{self._meaning}".encode()).hexdigest()[:12]
        return self.directory / f"{readable}-{digest}"

    def _names(self, unit: str) -> list[str]:
        try:
            names = os.listdir(self._directory_of(unit))
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _NAME.fullmatch(name))

    def _delete_temporary_files(self, directory: Path) -> None:
        """Delete what killed tasks left, if it is older than the oldest state."""
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(directory)
            oldest = min((name for name in names if _NAME.fullmatch(name)), default="")
            for name in names:
                if not _NAME.fullmatch(name) and _NAME.match(name) and name < oldest:
                    (directory / name).unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"<Checkpoints in {os.fspath(self.directory)!r}>"


def _are_seqs(values: Iterable[Any]) -> bool:
    return all(type(value) is int and 0 <= value <= MAX_NEXT_SEQ for value in values)
