"""`types.json` in a log's folder: every message that was ever written there, and how it lies."""

from __future__ import annotations

import bisect
import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tapewire.errors import (
    ConcurrentUse,
    CorruptMetadata,
    InvalidMessage,
    TapewireError,
    UnsupportedVersion,
)
from tapewire.protocol.fields import BY_NAME, FieldType
from tapewire.protocol.layout import Field, Layout, check_versions

__all__ = ["FILE_NAME", "merge", "read"]

FILE_NAME = "types.json"
FORMAT = "tapewire-types"
FORMAT_VERSION = 1
MAX_FILE_BYTES = 4 << 20
MAX_LAYOUTS = 4096
LOCK_SECONDS = 10.0


def read(folder: str | os.PathLike[str]) -> list[Layout]:
    """The layouts that a log's `types.json` holds; none when there is no such file.

    Raises:
        CorruptMetadata: The file is not what Tapewire writes; the message names the place in it.
        UnsupportedVersion: A later release wrote it.
    """
    path = os.path.join(os.fspath(folder), FILE_NAME)
    try:
        text = _load(path)
    except FileNotFoundError:
        return []
    return parse(text, path)


def merge(folder: str | os.PathLike[str], layouts: Iterable[Layout]) -> None:
    """Add layouts to `types.json`, at once and for good; writes nothing when all are there.

    Only the holder of a log's writer may call this.

    Raises:
        LayoutConflict: One does not go together with what is there; nothing is written.
        ConcurrentUse: Another thread has been at it for `LOCK_SECONDS`.
    """
    path = os.path.join(os.fspath(folder), FILE_NAME)
    with locked_folder(os.fspath(folder), FILE_NAME) as folder_fd:
        there = read(folder)
        added: list[Layout] = []
        for layout in layouts:
            of_type = (old for old in there + added if old.type_id == layout.type_id)
            try:
                check_versions(of_type, layout)
            except TapewireError as error:
                error.path = path
                raise
            if layout not in there and layout not in added:
                added.append(layout)
        if added:
            text = render(there + added)
            if len(text) > MAX_FILE_BYTES or len(there) + len(added) > MAX_LAYOUTS:
                raise InvalidMessage(
                    f"a log has no room for so many messages: types={len(there) + len(added)}, "
                    f"max={MAX_LAYOUTS}, bytes={len(text)}, max={MAX_FILE_BYTES}",
                    path=path,
                )
            _store(path, text, folder_fd)


def render(layouts: Iterable[Layout]) -> bytes:
    """The file for these layouts: JSON, with a line for each field."""
    types = []
    for layout in sorted(layouts, key=lambda layout: (layout.type_id, layout.version)):
        fields = [
            json.dumps(
                {
                    "name": field.name,
                    "type": field.type.name,
                    "offset": field.offset,
                    "count": field.type.count,
                }
            )
            for field in layout.fields
        ]
        head = json.dumps(
            {
                "type_id": layout.type_id,
                "name": layout.name,
                "version": layout.version,
                "size": layout.size,
            }
        )
        lines = ",\n   ".join(fields)
        types.append(f'{head[:-1]}, "fields": [\n   {lines}\n ]}}')
    head = json.dumps({"format": FORMAT, "version": FORMAT_VERSION})
    between = ",\n "
    return f'{head[:-1]}, "types": [\n {between.join(types)}\n]}}\n'.encode()


def parse(text: bytes, path: str) -> list[Layout]:
    """The layouts in the bytes of a `types.json`; `path` is for errors."""
    try:
        document = json.loads(
            text.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError too
        raise CorruptMetadata(f"not JSON of ours: {error}", path=path, hint=_REMEDY) from None
    try:
        return _layouts(document)
    except _Wrong as error:
        raise CorruptMetadata(str(error), path=path, hint=_REMEDY) from None
    except UnsupportedVersion as error:
        error.path = path
        raise


_REMEDY = "restore the file, or remove it: records stay, and a writer declares its messages anew"


class _Wrong(Exception):
    """Something in the document breaks a rule; the text says where and what."""


def _layouts(document: Any) -> list[Layout]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _Wrong(f'the document must be an object with "format": "{FORMAT}"')
    version = document.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UnsupportedVersion(
            f"a later release wrote this file: version={version}, known={FORMAT_VERSION}",
            hint="read it with that release, or upgrade",
        )
    _members(document, "the document", format=str, version=int, types=list)
    if version != FORMAT_VERSION:
        raise _Wrong(f"no such version: version={version!r}")
    entries = document["types"]
    if len(entries) > MAX_LAYOUTS:
        raise _Wrong(f"too many types: types={len(entries)}, max={MAX_LAYOUTS}")
    by_type: dict[int, list[Layout]] = {}
    for i, entry in enumerate(entries):
        where = f"types[{i}]"
        layout = _layout(entry, where)
        # Versions stand in order and their sizes rise: who goes with its neighbours goes with all,
        # and a file of thousands of versions is read in no time.
        versions = by_type.setdefault(layout.type_id, [])
        at = bisect.bisect(versions, layout.version, key=lambda other: other.version)
        near = versions[max(0, at - 1) : at + 1]
        if layout.version in (other.version for other in near):
            raise _Wrong(
                f"{where}: there twice: type_id={layout.type_id}, version={layout.version}"
            )
        _in_context(where, check_versions, near, layout)
        versions.insert(at, layout)
    return [layout for versions in by_type.values() for layout in versions]


def _layout(entry: Any, where: str) -> Layout:
    _members(entry, where, type_id=int, name=str, version=int, size=int, fields=list)
    fields = []
    for i, field in enumerate(entry["fields"]):
        at = f"{where}.fields[{i}]"
        _members(field, at, name=str, type=str, offset=int, count=int)
        fields.append(Field(field["name"], _field_type(field, at), field["offset"]))
    made: Layout = _in_context(
        where,
        Layout,
        entry["name"],
        entry["type_id"],
        entry["version"],
        entry["size"],
        tuple(fields),
    )
    return made


def _field_type(field: dict[str, Any], where: str) -> FieldType:
    kind = BY_NAME.get(field["type"])
    if kind is None:
        raise _Wrong(f"{where}: no such type: type={field['type']!r}")
    if field["count"] == 1 and not kind.sized:
        return kind
    made: FieldType = _in_context(where, kind.__getitem__, field["count"])
    return made


def _in_context(where: str, call: Any, *arguments: Any) -> Any:
    """`call(*arguments)`, whose errors become errors of the file."""
    try:
        return call(*arguments)
    except TapewireError as error:
        raise _Wrong(f"{where}: {error.message}") from None


def _members(value: Any, where: str, **kinds: type) -> None:
    """Exactly these members, each of its type."""
    if not isinstance(value, dict):
        raise _Wrong(f"{where} must be an object, it is {_short(value)}")
    for name in value:
        if name not in kinds:
            raise _Wrong(f"{where} has a member that is not known: {_short(name)}")
    for name, kind in kinds.items():
        if name not in value:
            raise _Wrong(f"{where} lacks a member: {name}")
        found = value[name]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise _Wrong(f"{where}.{name} must be of type {kind.__name__}: {name}={_short(found)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"no such number: {name}")


def _load(path: str) -> bytes:
    # Not blocking: a pipe put in its place must not hang us.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptMetadata("a link is not followed", path=path) from None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptMetadata("not a regular file", path=path)
        if status.st_size > MAX_FILE_BYTES:
            raise CorruptMetadata(
                f"larger than it can be: bytes={status.st_size}, max={MAX_FILE_BYTES}", path=path
            )
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES)
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_folder(folder: str, file_name: str) -> Iterator[int]:
    """The folder, open, and nobody else, thread or process, in here for it.

    A lock of the kernel's: a process forked meanwhile does not inherit it locked for ever. The wait
    ends: a signal handler that appends while it interrupts this very code would wait for itself.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConcurrentUse(
                        f"somebody else has been writing {file_name} for {LOCK_SECONDS} s",
                        path=folder,
                        hint="append the first message of a class outside signal handlers",
                    ) from None
                time.sleep(0.001)
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _store(path: str, text: bytes, folder_fd: int) -> None:
    """Replace the file so that a crash, of the machine too, leaves the old one or the new one."""
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # what a killed writer left
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, how, 0o600)
    with open(fd, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
    os.rename(temporary, path)
    os.fsync(folder_fd)
