"""The small JSON files that programs share: read with suspicion, replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from tapewire.errors import ConcurrentUse, CorruptMetadata, UnsupportedVersion
from tapewire.files import take_lock

__all__ = [
    "DECODER",
    "Wrong",
    "check_format",
    "decode",
    "entries_of",
    "load",
    "locked_folder",
    "members",
    "named_errors",
    "open_plain",
    "parse_checked",
    "short",
    "store",
]

LOCK_SECONDS = 10.0
MAX_DIGITS = 100  # of an integer: far more than 64 bits, so that a check can name the member

_T = TypeVar("_T")


class Wrong(Exception):
    """Something in the document breaks a rule; the text says where and what."""


def parse_checked(text: bytes, path: str, check: Callable[[Any], _T], remedy: str) -> _T:
    """What `check` makes of the document in these bytes; its `Wrong` becomes `CorruptMetadata`."""
    try:
        document = decode(text)
    except ValueError as error:
        raise CorruptMetadata(f"not JSON of ours: {error}", path=path, hint=remedy) from None
    with named_errors(path, remedy):
        return check(document)


@contextlib.contextmanager
def named_errors(path: str, remedy: str) -> Iterator[None]:
    """Turn `Wrong` into `CorruptMetadata` of this file; `UnsupportedVersion` gets the path."""
    try:
        yield
    except Wrong as error:
        raise CorruptMetadata(str(error), path=path, hint=remedy) from None
    except UnsupportedVersion as error:
        error.path = path
        raise


def decode(text: bytes) -> Any:
    """The value of a JSON document, by the rules of every JSON file that Tapewire writes.

    Not accepted: another encoding than UTF-8, an object with a duplicated member, NaN and
    infinities, nesting deeper than the interpreter's stack, integers of more than `MAX_DIGITS`
    digits.

    Example:
        >>> decode(b'{"seq": 7}')
        {'seq': 7}
        >>> decode(b"1" * 5000)
        Traceback (most recent call last):
        ValueError: integer too long: digits=5000, max=100

    Raises:
        ValueError: It is not such a document; the text says why.
    """
    try:
        return DECODER.decode(text.decode())
    except RecursionError:
        raise ValueError("nested too deep") from None


def check_format(
    document: Any,
    format_: str,
    version: int,
    remedy: str = "read it with that release, or upgrade",
) -> dict[str, Any]:
    """The document, an object of this format and version; `remedy` is for that of a later one."""
    if not isinstance(document, dict) or document.get("format") != format_:
        raise Wrong(f'the document must be an object with "format": "{format_}"')
    found = document.get("version")
    if isinstance(found, int) and found > version:
        raise UnsupportedVersion(
            f"a later release wrote this file: version={found}, known={version}", hint=remedy
        )
    if isinstance(found, int) and found != version:
        raise Wrong(f"no such version: version={found!r}")
    return document  # its members are still to be checked, the type of the version among them


def entries_of(document: Any, format_: str, version: int, member: str, most: int) -> list[Any]:
    """The list that a document of this format and version is made for."""
    check_format(document, format_, version)
    members(document, "the document", **{"format": str, "version": int, member: list})
    entries: list[Any] = document[member]
    if len(entries) > most:
        raise Wrong(f"too many {member}: {member}={len(entries)}, max={most}")
    return entries


def members(value: Any, where: str, **kinds: Any) -> None:
    """Exactly these members, each of its type."""
    if not isinstance(value, dict):
        raise Wrong(f"{where} must be an object, it is {short(value)}")
    for name in value:
        if name not in kinds:
            raise Wrong(f"{where} has a member that is not known: {short(name)}")
    for name, kind in kinds.items():
        if name not in value:
            raise Wrong(f"{where} lacks a member: {name}")
        found = value[name]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise Wrong(f"{where}.{name} must be of type {_said(kind)}: {name}={short(found)}")


def _said(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def short(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"no such number: {name}")


def _integer(text: str) -> int:
    # `int` has a limit of its own, which a user can lift: then its time is quadratic. Integers
    # close to it fail later, in a message that shows a sum of them.
    if len(text) > MAX_DIGITS:
        raise ValueError(f"integer too long: digits={len(text)}, max={MAX_DIGITS}")
    return int(text)


DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer
)


def load(path: str, max_bytes: int) -> bytes:
    """All of a file that must be a plain one, and no larger than this."""
    with open_plain(path, max_bytes) as file:
        # Not max_bytes alone: `read` allocates what it is asked for.
        return file.read(min(os.fstat(file.fileno()).st_size, max_bytes))


@contextlib.contextmanager
def open_plain(path: str, max_bytes: int) -> Iterator[BinaryIO]:
    """A file to read from, that must be a plain one, and no larger than this.

    Raises:
        CorruptMetadata: It is a link, not a regular file, or too large; the error names the file,
            its size and the limit.
    """
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
        if status.st_size > max_bytes:
            raise CorruptMetadata(
                f"larger than it can be: bytes={status.st_size}, max={max_bytes}", path=path
            )
        with open(fd, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_folder(folder: str, file_name: str) -> Iterator[int]:
    """Hold the directory's lock, against threads and processes; yields its descriptor.

    A lock of the kernel's, so a process forked meanwhile does not inherit it locked indefinitely.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not take_lock(fd, LOCK_SECONDS):
            raise ConcurrentUse(
                f"another process or thread has been writing {file_name} for {LOCK_SECONDS} s",
                path=folder,
                hint="append the first message of a class outside signal handlers",
            )
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def store(path: str, text: bytes, folder_fd: int) -> None:
    """Replace the file so that a crash, of the machine too, leaves the old one or the new one."""
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # what a killed writer left
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, how, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, path)
    except OSError as error:  # a full disk is not to be fuller for it, and is to be found
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if error.filename is None:
            error.filename = path
        raise
    os.fsync(folder_fd)
