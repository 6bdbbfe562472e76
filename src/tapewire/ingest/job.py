"""A job: one import of given files with given options, and the end of each log before it.

With `imports/<job>.json` in the archive, a killed import resumes without duplicated records;
docs/formats/imports.md has its fields.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tapewire.bus.names import check_name
from tapewire.errors import (
    ConcurrentUse,
    CorruptMetadata,
    InvalidName,
    InvalidOption,
)
from tapewire.files import path_below, take_lock
from tapewire.ingest.importer import ImportSummary
from tapewire.ingest.report import REJECTED
from tapewire.ingest.source import SourceFile
from tapewire.protocol.json_file import (
    InvalidField,
    check_format,
    load,
    locked_directory,
    members,
    parse_checked,
    short,
    store,
)

__all__ = ["Job", "job_id"]

FORMAT = "tapewire-import"
VERSION = 2
IDENTITY_VERSION = 1  # of what a job's name is made from: those of version 1 are resumed
DIRECTORY = "imports"
MAX_FILE_BYTES = 64 << 20
_REMEDY = "restore the file; without it the records of this import cannot be identified in the logs"


def job_id(importer: str, options: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> str:
    """The job's name: the importer's name, and a hash of everything that determines its records.

    Example:
        >>> job_id("okx", {"price_scale": 8}, [{"name": "a", "size": 1, "sha256": "00"}])
        'okx-697d42601152b5b2'
    """
    text = json.dumps([IDENTITY_VERSION, importer, options, files], sort_keys=True, default=list)
    return f"{importer}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# Smaller content without a second line, such as a header without rows, may be that of many files.
_FEW_BYTES = 1 << 16


class Job:
    """The file of a job, used by one process at a time.

    Unless the job is done, every file is read once before, so that only undamaged data is imported
    and content that was imported before is recognized however it is packed.

    Attributes:
        id: Its name.
        directory: The directory `imports/<id>` for the rejected rows.
        notes: Log below the archive → the sequence number of this job's first record in it.
        done: Everything was imported and is durable.
        summary: The summary of the run that finished the job, if it is done.
        resumed: An earlier run began it.
    """

    def __init__(
        self,
        archive: Path,
        importer: str,
        options: Mapping[str, Any],
        files: Sequence[SourceFile],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._head: dict[str, Any] = {
            "importer": importer,
            "options": {name: _plain(value) for name, value in options.items()},
            "files": [{"name": f.name, "size": f.size, "sha256": f.digest()} for f in files],
        }
        _refuse_duplicates(self._head["files"])
        self.id = job_id(importer, self._head["options"], self._head["files"])
        self.notes: dict[str, int] = {}
        self._others: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        self.done = False
        self.summary: dict[str, Any] = {}
        self._contents: list[str] = []  # SHA-256 of the content of each file; empty if it is small
        self._imports = path_below(archive, DIRECTORY)
        self._path = path_below(archive, DIRECTORY, f"{self.id}.json")
        self.directory = path_below(archive, DIRECTORY, self.id)
        for directory in (self._imports, self.directory):
            directory.mkdir(mode=0o700, exist_ok=True)
        self._lock = self._locked()
        try:
            self.resumed = self._load()
            if not self.done:
                self._check(files, progress)
                self._store()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "done" if self.done else "resumed" if self.resumed else "new"
        return f"Job({self.id!r}, {state}, {len(self.notes)} logs)"

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the job; its files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def first_seq(self, log: str, next_seq: int) -> int:
        """The sequence number of this job's first record in a log that ends before `next_seq`.

        It is stored, durably, when the job opens the log for the first time.

        Raises:
            ConcurrentUse: Another job is unfinished in this log: to resume, it counts records.
            InvalidOption: Another job has imported one of these files into this log.
            CorruptMetadata: The log is shorter than it was.
        """
        if log not in self.notes:
            with locked_directory(os.fspath(self._imports), self._path.name) as directory_fd:
                self._refuse_unfinished(log)
                self.notes[log] = next_seq
                self._store_in(directory_fd)
        first = self.notes[log]
        if first > next_seq:
            raise CorruptMetadata(
                f"the log is shorter than when this import began: next_seq={next_seq}, "
                f"recorded={first}, log={log}",
                path=os.fspath(self._path),
                hint="restore the log, or import into a new archive",
            )
        return first

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Record, durably, that everything is in the logs."""
        self.done, self.summary = True, dict(summary)
        self._store()

    def finished_summary(self) -> ImportSummary:
        """The summary of the run that finished the job, with `already` set."""
        try:
            summary = ImportSummary.from_dict(self.id, self.summary)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptMetadata(
                f"not a summary: {error}", path=os.fspath(self._path), hint=_REMEDY
            ) from None
        summary.rejected = os.fspath(self.directory / REJECTED) if summary.bad else None
        return summary

    def _check(self, files: Sequence[SourceFile], progress: Callable[[int], None] | None) -> None:
        """Read every file; raise if two have the same content."""
        names: dict[str, str] = {}
        before = 0
        self._contents = []
        for file in files:
            found = file.check(_added(progress, before))
            before += file.size
            known = found.lines > 1 or found.size > _FEW_BYTES
            self._contents.append(found.sha256 if known else "")
            if known and names.setdefault(found.sha256, file.name) != file.name:
                raise InvalidOption(
                    f"two files have the same content: {names[found.sha256]!r}, {file.name!r}",
                    hint="give each file once",
                )

    def _locked(self) -> int:
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not take_lock(fd):
            os.close(fd)
            raise ConcurrentUse(
                f"another process is importing these files: job={self.id}",
                path=os.fspath(self.directory),
                hint="wait until that import ends",
            )
        return fd

    def _refuse_unfinished(self, log: str) -> None:
        for name in sorted(os.listdir(self._imports)):
            path = self._imports / name
            if not name.endswith(".json") or path == self._path:
                continue
            other = self._other(path)
            if log not in other["logs"]:
                continue
            if other["state"] == "done":
                self._refuse_if_doubled(path, log, other)
            else:
                raise ConcurrentUse(
                    f"another import is unfinished in this log: job={name[:-5]}, log={log}",
                    path=os.fspath(path),
                    hint="run that import again to its end; or, if its files no longer exist, "
                    "remove its logs and this file",
                )

    def _refuse_if_doubled(self, path: Path, log: str, other: dict[str, Any]) -> None:
        """Raise if a finished job has imported one of these files into this log."""
        if other["importer"] != self._head["importer"]:
            return
        known = {_packed(file) for file in other["files"]} | set(other["contents"])
        for file, content in zip(self._head["files"], self._contents, strict=True):
            if file["size"] and (_packed(file) in known or (content and content in known)):
                raise InvalidOption(
                    f"the records of this file are already in the log: file={file['name']!r}, "
                    f"job={path.name[:-5]}, log={log}",
                    path=os.fspath(path),
                    hint="import only the files that are new, or into a new archive",
                )

    def _other(self, path: Path) -> dict[str, Any]:
        """The document of another job, read again if it was replaced."""
        status = os.lstat(path)
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._others.get(path.name, ((), {}))[0] != stamp:
            document = _read(path)
            self._others[path.name] = (
                stamp,
                {
                    name: document[name]
                    for name in ("importer", "files", "contents", "state", "logs")
                },
            )
        return self._others[path.name][1]

    def _load(self) -> bool:
        try:
            document = _read(self._path)
        except FileNotFoundError:
            return False
        for key, value in self._head.items():
            if document[key] != value:
                raise CorruptMetadata(
                    f"the file is of another import: {key}={document[key]!r}",
                    path=os.fspath(self._path),
                    hint=_REMEDY,
                )
        self.notes, self.done = document["logs"], document["state"] == "done"
        self.summary, self._contents = document["summary"], document["contents"]
        return True

    def _store(self) -> None:
        with locked_directory(os.fspath(self._imports), self._path.name) as directory_fd:
            self._store_in(directory_fd)

    def _store_in(self, directory_fd: int) -> None:
        state = "done" if self.done else "running"
        document = {
            "format": FORMAT,
            "version": VERSION,
            **self._head,
            "contents": self._contents,
            "state": state,
            "logs": self.notes,
            "summary": self.summary,
        }
        store(os.fspath(self._path), json.dumps(document, indent=1).encode() + b"\n", directory_fd)


def _added(progress: Callable[[int], None] | None, before: int) -> Callable[[int], None] | None:
    """Reports the bytes of earlier files as well."""
    return None if progress is None else lambda read: progress(before + read)


def _packed(file: Any) -> tuple[Any, str]:
    """The file as it is packed: all members of a zip have its hash."""
    if not isinstance(file, dict):
        return None, ""
    return file.get("sha256"), str(file.get("name")).partition("!")[2]


def _refuse_duplicates(files: Sequence[Mapping[str, Any]]) -> None:
    names: dict[Any, str] = {}
    for file in files:
        content = _packed(file)
        if content in names and file["size"]:
            raise InvalidOption(
                f"two files have the same content: {names[content]!r}, {file['name']!r}",
                hint="give each file once",
            )
        names[content] = file["name"]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read(path: Path) -> dict[str, Any]:
    """Read the document of a job and check every member."""
    text = load(os.fspath(path), MAX_FILE_BYTES)
    return parse_checked(text, os.fspath(path), _checked, _REMEDY)


def _checked(value: Any) -> dict[str, Any]:
    if (
        isinstance(value, dict) and value.get("version") == 1
    ):  # before contents were compared: the hashes of the files identify them
        value = {"contents": [], **value, "version": VERSION}
    document = check_format(value, FORMAT, VERSION, "resume with that release, or upgrade")
    members(
        document,
        "the document",
        format=str,
        version=int,
        importer=str,
        options=dict,
        files=list,
        contents=list,
        state=str,
        logs=dict,
        summary=dict,
    )
    if document["state"] not in ("running", "done"):
        raise InvalidField(f"state must be running or done: state={short(document['state'])}")
    for log, first in document["logs"].items():
        if type(first) is not int or not 0 <= first < 2**64:
            raise InvalidField(
                f"a sequence number must fit 64 bits: logs[{short(log)}]={short(first)}"
            )
        try:
            for part in log.split("/"):
                check_name("log", part)
        except InvalidName as error:
            raise InvalidField(str(error)) from None
    return document
