"""Small JSON files that processes share: strictly validated, replaced atomically."""

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
    "InvalidField",
    "check_format",
    "decode",
    "entries_of",
    "load",
    "locked_directory",
    "members",
    "named_errors",
    "open_plain",
    "parse_checked",
    "short",
    "store",
]

LOCK_SECONDS = 10.0
MAX_DIGITS = 100  # of an integer: more than 64 bits, so that a later check can name the member

_T = TypeVar("_T")


class InvalidField(Exception):
    """The document is invalid; the text names the place and the rule."""


def parse_checked(text: bytes, path: str, check: Callable[[Any], _T], remedy: str) -> _T:
    """Return `check` of the document in `text`; its `InvalidField` becomes `CorruptMetadata`."""
    try:
        document = decode(text)
    except ValueError as error:
        raise CorruptMetadata(f"not valid JSON: {error}", path=path, hint=remedy) from None
    with named_errors(path, remedy):
        return check(document)


@contextlib.contextmanager
def named_errors(path: str, remedy: str) -> Iterator[None]:
    """Turn `InvalidField` into `CorruptMetadata`; give it and `UnsupportedVersion` the path."""
    try:
        yield
    except InvalidField as error:
        raise CorruptMetadata(str(error), path=path, hint=remedy) from None
    except UnsupportedVersion as error:
        error.path = path
        raise


def decode(text: bytes) -> Any:
    """Decode a JSON document, with the rules of all JSON files of Tapewire.

    Rejects encodings other than UTF-8, objects with a duplicated member, NaN and infinities,
    nesting deeper than the interpreter's stack, and integers of more than `MAX_DIGITS` digits.

    Example:
        >>> decode(b'{"seq": 7}')
        {'seq': 7}
        >>> decode(b"1" * 5000)
        Traceback (most recent call last):
        ValueError: integer too long: digits=5000, max=100

    Raises:
        ValueError: The document is invalid; the text has the reason.
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
    """Return the document if it has this format and version; `remedy` is for a later version."""
    if not isinstance(document, dict) or document.get("format") != format_:
        raise InvalidField(f'the document must be an object with "format": "{format_}"')
    found = document.get("version")
    if isinstance(found, int) and found > version:
        raise UnsupportedVersion(
            f"a later release wrote this file: version={found}, known={version}", hint=remedy
        )
    if isinstance(found, int) and found != version:
        raise InvalidField(f"no such version: version={found!r}")
    return document  # its members are not checked yet, nor is the type of the version


def entries_of(document: Any, format_: str, version: int, member: str, most: int) -> list[Any]:
    """Return the list `member` of a document of this format and version."""
    check_format(document, format_, version)
    members(document, "the document", **{"format": str, "version": int, member: list})
    entries: list[Any] = document[member]
    if len(entries) > most:
        raise InvalidField(f"too many {member}: {member}={len(entries)}, max={most}")
    return entries


def members(value: Any, where: str, **kinds: Any) -> None:
    """Check that an object has exactly these members, each of its type."""
    if not isinstance(value, dict):
        raise InvalidField(f"{where} must be an object, not {short(value)}")
    for name in value:
        if name not in kinds:
            raise InvalidField(f"{where} has an unknown member: {short(name)}")
    for name, kind in kinds.items():
        if name not in value:
            raise InvalidField(f"{where} lacks a member: {name}")
        found = value[name]
        if not isinstance(found, kind) or isinstance(found, bool):
            raise InvalidField(
                f"{where}.{name} must be of type {_type_name(kind)}: {name}={short(found)}"
            )


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def short(value: Any) -> str:
    """Return the `repr` of a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member")
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"not a number: {name}")


def _integer(text: str) -> int:
    # `int` has its own limit, but users can lift it, and then it takes quadratic time. Integers
    # just below it would fail later, in a message that shows a sum of them.
    if len(text) > MAX_DIGITS:
        raise ValueError(f"integer too long: digits={len(text)}, max={MAX_DIGITS}")
    return int(text)


DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer
)


def load(path: str, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`."""
    with open_plain(path, max_bytes) as file:
        # Not `max_bytes` alone, since `read` allocates that much.
        return file.read(min(os.fstat(file.fileno()).st_size, max_bytes))


@contextlib.contextmanager
def open_plain(path: str, max_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file of at most `max_bytes` for reading.

    Raises:
        CorruptMetadata: It is a link, not a regular file, or too large; the error names the file,
            its size and the limit.
    """
    # Non-blocking, so that opening a FIFO does not hang.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CorruptMetadata("links are not followed", path=path) from None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptMetadata("not a regular file", path=path)
        if status.st_size > max_bytes:
            raise CorruptMetadata(
                f"file too large: bytes={status.st_size}, max={max_bytes}", path=path
            )
        with open(fd, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_directory(directory: str, file_name: str) -> Iterator[int]:
    """Hold the lock of a directory, against threads and processes; yield its descriptor.

    The lock is the kernel's, so a forked process does not inherit a lock that is never released.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not take_lock(fd, LOCK_SECONDS):
            raise ConcurrentUse(
                f"another process or thread has been writing {file_name} for {LOCK_SECONDS} s",
                path=directory,
                hint="append the first message of a class outside signal handlers",
            )
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def store(path: str, text: bytes, directory_fd: int) -> None:
    """Replace a file atomically and durably: after a crash the old or the new one exists."""
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # left by a killed process
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, path)
    except OSError as error:  # free the space on a full disk, and name the file in the error
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if error.filename is None:
            error.filename = path
        raise
    os.fsync(directory_fd)
