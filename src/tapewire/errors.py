"""The errors that Tapewire raises.

A message states the broken constraint with ``name=value``, then where (`path`, `offset`), then what
to do (`hint`). Failures of the operating system are `OSError`.
"""

from __future__ import annotations

import os

__all__ = [
    "BatchConflict",
    "ChecksumMismatch",
    "ClosedHandle",
    "ConcurrentUse",
    "CorruptMetadata",
    "CorruptRecord",
    "CorruptSource",
    "DiskFull",
    "ForkedHandle",
    "GapDetected",
    "InvalidMessage",
    "InvalidName",
    "InvalidOption",
    "InvalidTypeId",
    "JavaUnusable",
    "LayoutConflict",
    "LockLost",
    "MappingLost",
    "NotALog",
    "Overrun",
    "PayloadTooLarge",
    "QueueFull",
    "ReaderAlreadyActive",
    "ReservationOpen",
    "SegmentMissing",
    "SegmentNotReady",
    "SequenceNotRising",
    "StorageError",
    "TapewireError",
    "UnknownOrder",
    "UnsupportedVersion",
    "WriterAlreadyActive",
]


class TapewireError(Exception):
    """Base class of Tapewire's errors.

    Attributes:
        path: The file or directory concerned, or None.
        offset: Byte offset in the file, or None.
        hint: What to do about it, or None.
        appended: Number of records of a batch appended before the error, or None.
        applied: Number of records of a batch applied to a book, including the one that raised, or
            None.

    Example:
        >>> error = TapewireError("x must increase: x=1", path="q/a.q", offset=64, hint="raise x")
        >>> print(error)
        x must increase: x=1 [q/a.q at offset 64]; raise x
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.hint = hint
        self.appended: int | None = None
        self.applied: int | None = None

    def __str__(self) -> str:
        text = self.message
        if self.path is not None:
            at = "" if self.offset is None else f" at offset {self.offset}"
            text += f" [{self.path}{at}]"
        return f"{text}; {self.hint}" if self.hint else text


class StorageError(TapewireError, OSError):
    """A system call failed; `errno` is its error number. Also an `OSError`."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
        errno: int = 0,
    ) -> None:
        TapewireError.__init__(self, message, path=path, offset=offset, hint=hint)
        self.errno = errno or None
        self.strerror = os.strerror(errno) if errno else None
        self.filename = path


class DiskFull(StorageError):
    """The filesystem is full. Nothing was partly written; retry once there is space."""


class PayloadTooLarge(TapewireError, ValueError):
    """The payload is larger than a segment can hold."""


class QueueFull(TapewireError):
    """`max_bytes` or `max_segments` is reached, no segment can be retired. Nothing was appended."""


class WriterAlreadyActive(TapewireError):
    """The queue already has a live writer."""


class LockLost(TapewireError):
    """A lock of this writer was removed or replaced, so another writer may open the queue."""


class ReaderAlreadyActive(TapewireError):
    """Another reader with this name is open."""


class UnsupportedVersion(TapewireError):
    """The version of a file or of a record is not supported by this release."""


class CorruptMetadata(TapewireError):
    """A control file, a segment header or a reader's file is damaged."""


class CorruptRecord(TapewireError):
    """A record is damaged. Raised on each read until `skip_damaged()` moves the reader past it."""


class CorruptSource(TapewireError):
    """A file to import is truncated, damaged or of another format. The rows before are imported."""


class ChecksumMismatch(CorruptRecord):
    """A record's payload does not match its checksum."""


class SegmentMissing(TapewireError):
    """The segment to read next no longer exists: retention or another process removed it.

    Attributes:
        committed: ``(segment, offset)`` that this reader last committed, or its position.
        first_available_seq: Sequence number of the first record that still exists.
    """

    committed: tuple[int, int] | None = None
    first_available_seq: int | None = None


class InvalidTypeId(TapewireError, ValueError):
    """A type id is not in 0 … 0xFFFE; 0xFFFF marks padding."""


class InvalidOption(TapewireError, ValueError):
    """The value of an option is invalid, or conflicts with the existing queue."""


class InvalidName(TapewireError, ValueError):
    """A name that is used in a path contains characters that are not allowed."""


class GapDetected(TapewireError):
    """Sequence numbers `first` … `last` are missing. Raised once; the next read continues."""

    first: int = 0
    last: int = 0


class Overrun(TapewireError):
    """The writer has overwritten records that this reader has not read."""


class NotALog(TapewireError):
    """The path is not a log of a kind that Tapewire supports."""


class ForkedHandle(TapewireError):
    """The handle was opened by the parent process, before `fork`."""


class ClosedHandle(TapewireError, ValueError):
    """The handle is closed."""


class ConcurrentUse(TapewireError):
    """Two threads or processes used what only one may use, or changed a batch being appended."""


class ReservationOpen(TapewireError):
    """A reservation must be committed or aborted before the next append."""


class SegmentNotReady(TapewireError):
    """`require_prealloc` is set and the next segment is not allocated yet."""


class SequenceNotRising(TapewireError, ValueError):
    """A sequence number passed to a sparse log is not greater than the last one."""


class InvalidMessage(TapewireError, ValueError):
    """The definition of a message is invalid, or a value does not fit its field."""


class LayoutConflict(TapewireError):
    """Two messages have the same type id and version, or a newer version is not larger."""


class JavaUnusable(TapewireError, RuntimeError):
    """Spark cannot start: Java is missing or too old."""


class MappingLost(TapewireError):
    """A file was truncated while it was mapped."""


class BatchConflict(TapewireError):
    """A batch with this id was already published with different rows."""


class UnknownOrder(TapewireError, LookupError):
    """An event refers to an order that is not in the book, or adds one that already is."""


# In the order of tapewire::Errc.
_BY_CODE: tuple[type[TapewireError], ...] = (
    StorageError,
    DiskFull,
    PayloadTooLarge,
    QueueFull,
    WriterAlreadyActive,
    ReaderAlreadyActive,
    UnsupportedVersion,
    CorruptMetadata,
    CorruptRecord,
    ChecksumMismatch,
    SegmentMissing,
    InvalidTypeId,
    InvalidOption,
    InvalidName,
    GapDetected,
    NotALog,
    ForkedHandle,
    ClosedHandle,
    ReservationOpen,
    SegmentNotReady,
    SequenceNotRising,
    MappingLost,
    UnknownOrder,
    LockLost,
    ConcurrentUse,
)


def from_native(
    code: int,
    message: str,
    path: str,
    offset: int,
    hint: str,
    errno: int,
    numbers: tuple[int, int, int],
) -> BaseException:
    """Make the exception for an error of the native core; called by the bindings."""
    kind = _BY_CODE[code - 1]
    where = path or None
    if issubclass(kind, StorageError):
        if kind is StorageError:
            # Users catch FileNotFoundError, PermissionError and the like.
            specific = _os_error_class(errno)
            error: TapewireError = specific(message, path=where, hint=hint or None, errno=errno)
        else:
            error = kind(message, path=where, hint=hint or None, errno=errno)
    else:
        error = kind(message, path=where, offset=offset if offset >= 0 else None, hint=hint or None)
    if isinstance(error, GapDetected):
        error.first, error.last = numbers[0], numbers[1]
    elif isinstance(error, SegmentMissing):
        error.committed = (numbers[0], numbers[1])
        error.first_available_seq = numbers[2]
    return error


_STORAGE_CLASSES: dict[type[OSError], type[StorageError]] = {}


def _os_error_class(errno: int) -> type[StorageError]:
    """Return a `StorageError` class that is also the built-in subclass of OSError for `errno`."""
    builtin = type(OSError(errno, ""))
    if builtin is OSError:
        return StorageError
    if builtin not in _STORAGE_CLASSES:
        _STORAGE_CLASSES[builtin] = type(builtin.__name__, (StorageError, builtin), {})
    return _STORAGE_CLASSES[builtin]
