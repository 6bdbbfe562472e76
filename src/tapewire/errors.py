"""Every error that Tapewire raises.

An error states the broken constraint with ``name=value``, then where (`path`, `offset`), then what
to do (`hint`). What is wrong with the operating system stays an `OSError`.
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
    """Base of all errors that are Tapewire's own.

    Attributes:
        path: The file or folder concerned, or None.
        offset: Byte offset in it, or None.
        hint: What to do about it, or None.
        appended: How many records of a batch were appended before the error, or None.
        applied: How many records of a batch a book has taken, that of the error too, or None.

    Example:
        >>> error = TapewireError("x must rise: x=1", path="q/a.q", offset=64, hint="raise x")
        >>> print(error)
        x must rise: x=1 [q/a.q at offset 64]; raise x
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
    """The operating system refused; `errno` says why. It is an `OSError` too."""

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
    """No room on the filesystem. Nothing was half-written; append again when there is room."""


class PayloadTooLarge(TapewireError, ValueError):
    """The payload fits no segment."""


class QueueFull(TapewireError):
    """`max_bytes` or `max_segments` is reached and no reader made room. Nothing was appended."""


class WriterAlreadyActive(TapewireError):
    """The queue has a living writer."""


class LockLost(TapewireError):
    """A lock of this writer was removed or replaced: another one may write the queue."""


class ReaderAlreadyActive(TapewireError):
    """Another reader holds this name."""


class UnsupportedVersion(TapewireError):
    """A file has a version this release does not know, or a record is of an unknown version."""


class CorruptMetadata(TapewireError):
    """A control, segment-header or reader file is damaged."""


class CorruptRecord(TapewireError):
    """A record is damaged. Raised each time until `skip_damaged()` moves the reader past it."""


class CorruptSource(TapewireError):
    """A file to import from is cut short, damaged, or none. What lies before it was imported."""


class ChecksumMismatch(CorruptRecord):
    """A record's payload does not match its checksum."""


class SegmentMissing(TapewireError):
    """The segment to read next is gone (retention, or somebody removed it).

    Attributes:
        committed: ``(segment, offset)`` that this reader last committed, or where it stands.
        first_available_seq: Number of the first record that is still there.
    """

    committed: tuple[int, int] | None = None
    first_available_seq: int | None = None


class InvalidTypeId(TapewireError, ValueError):
    """A type id is not in 0 … 0xFFFE; 0xFFFF is the padding's."""


class InvalidOption(TapewireError, ValueError):
    """An option cannot be, or does not fit the queue."""


class InvalidName(TapewireError, ValueError):
    """A name that becomes a path has characters it must not have."""


class GapDetected(TapewireError):
    """Numbers are missing: `first` … `last`. Raised once; the next call reads on."""

    first: int = 0
    last: int = 0


class Overrun(TapewireError):
    """The producer has overwritten what this reader was about to read."""


class NotALog(TapewireError):
    """The path holds no kind of log that Tapewire knows."""


class ForkedHandle(TapewireError):
    """The handle was opened before `fork`, in the parent."""


class ClosedHandle(TapewireError, ValueError):
    """The handle is closed."""


class ConcurrentUse(TapewireError):
    """Two threads used one reader at the same time, or changed a batch that was being appended."""


class ReservationOpen(TapewireError):
    """A reservation must be committed or aborted before the next append."""


class SegmentNotReady(TapewireError):
    """`require_prealloc` is set and the next segment is not prepared yet."""


class SequenceNotRising(TapewireError, ValueError):
    """A number given to a sparse log is not higher than the last one."""


class InvalidMessage(TapewireError, ValueError):
    """A message cannot be defined so, or a value does not fit its field."""


class LayoutConflict(TapewireError):
    """Two messages want one type id and version, or two versions could not be told apart."""


class JavaUnusable(TapewireError, RuntimeError):
    """Spark cannot start: there is no Java, or one that is too old for it."""


class MappingLost(TapewireError):
    """A file was cut short while it was mapped."""


class BatchConflict(TapewireError):
    """A batch of this number was published before, with other rows."""


class UnknownOrder(TapewireError, LookupError):
    """An event names an order that its book does not have, or adds one that it has."""


# Order of tapewire::Errc.
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
    """The exception for an error of the native core; the bindings call this."""
    kind = _BY_CODE[code - 1]
    where = path or None
    if issubclass(kind, StorageError):
        if kind is StorageError:
            # FileNotFoundError, PermissionError and the like are what users catch.
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
    """`StorageError` that is also the built-in subclass of OSError for this errno."""
    builtin = type(OSError(errno, ""))
    if builtin is OSError:
        return StorageError
    if builtin not in _STORAGE_CLASSES:
        _STORAGE_CLASSES[builtin] = type(builtin.__name__, (StorageError, builtin), {})
    return _STORAGE_CLASSES[builtin]
