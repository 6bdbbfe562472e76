"""What every kind of log has in common: the record, the reader's verbs, and how kinds are told."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tapewire import _native
from tapewire._native import Batch, Record, SkippedSpan
from tapewire.errors import NotALog, TapewireError

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    from tapewire.clock import TimeLike

__all__ = [
    "Batch",
    "Kind",
    "Reader",
    "Record",
    "SkippedSpan",
    "UnknownMessage",
    "kind_of",
    "open_log",
    "register_decoder",
    "register_kinds",
    "unregister_decoder",
]


@runtime_checkable
class Reader(Protocol):
    """The verbs of every reader. `caps` names what a kind adds or can do; see `docs/reference`."""

    kind: str
    caps: frozenset[str]

    def next(self) -> Record | None:
        """The next record, or None at the end; never blocks."""
        ...

    def read_batch(self, max_records: int = ...) -> Batch:
        """Up to so many records as columns; possibly none."""
        ...

    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...
    def follow(self, timeout: float | None = None) -> Iterator[Record]:
        """Iterate and wait for more; ends after `timeout` seconds without a record."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """True as soon as there is something to read."""
        ...

    def for_each(
        self,
        fn: Callable[..., object],
        max_records: int | None = None,
        *,
        data: Buffer | np.ndarray[Any, Any] | None = None,
        follow: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Call `fn(record)` until it returns False; how many it saw."""
        ...

    def fileno(self) -> int:
        """A descriptor for event loops, readable while there may be something to read."""
        ...

    def __aiter__(self) -> AsyncGenerator[Record, None]: ...

    def seek_seq(self, seq: int) -> bool:
        """To the first record with at least this number."""
        ...

    def seek_time(self, time: TimeLike) -> bool:
        """To the first record at which the tape had reached this time."""
        ...

    def seek_start(self) -> bool:
        """To the earliest record."""
        ...

    def seek_end(self) -> bool:
        """Behind the last record."""
        ...

    def skip_damaged(self) -> SkippedSpan:
        """Past a damaged place; what was skipped."""
        ...

    def close(self) -> None:
        """Give the reader up."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

    @property
    def position(self) -> object:
        """Where the next record is looked for."""
        ...

    @property
    def last_seq(self) -> int | None:
        """Number of the last record read, or None."""
        ...


@dataclass(frozen=True)
class Kind:
    """One kind of log: how it is recognised, and the module that reads it.

    The module has ``open_reader(where, types)``. A directory that holds the file `marker` is a log
    of this kind.
    """

    name: str
    module: str
    marker: str


_kinds: tuple[Kind, ...] = ()


def register_kinds(kinds: Iterable[Kind]) -> None:
    """Take the table of kinds. `tapewire/__init__.py` holds it: this layer knows no upper one."""
    global _kinds  # noqa: PLW0603
    _kinds = tuple(kinds)


def _find(where: str | os.PathLike[str]) -> tuple[Kind, str]:
    text = os.fspath(where)
    if not isinstance(text, str):
        raise TypeError(f"where must be text or a path: where={where!r}")
    # A folder that may not be entered is a PermissionError, not a missing log.
    if _stat(text) is None:
        raise FileNotFoundError(2, "no such log", text)
    for kind in _kinds:
        marker = _stat(os.path.join(text, kind.marker))
        if marker is not None and stat.S_ISREG(marker.st_mode):
            return kind, text
    raise NotALog(
        "no kind of log that Tapewire knows is here",
        path=text,
        hint="give the folder of a queue (it holds control.meta)",
    )


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def kind_of(where: str | os.PathLike[str]) -> str:
    """Which kind of log a path or address holds.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     tw.kind_of(tmp / "q")
        'queue'
    """
    return _find(where)[0].name


def open_log(where: str | os.PathLike[str], types: Iterable[int] | None = None) -> Reader:
    """A read-only, anonymous reader over any kind of log: no file is made, nothing registered.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"hello")
        >>> with tw.open_log(tmp / "q") as reader:
        ...     [bytes(record.payload) for record in reader]
        [b'hello']
    """
    kind, text = _find(where)
    module: ModuleType = importlib.import_module(kind.module)
    reader: Reader = module.open_reader(text, types)
    return reader


class UnknownMessage(TapewireError, LookupError):
    """No message is registered for a record's type."""


_decoders: dict[int, Callable[[Record], Any]] = {}


def register_decoder(type_id: int, decoder: Callable[[Record], Any]) -> None:
    """Have `Record.decode` call `decoder` for records of this type."""
    _decoders[type_id] = decoder


def unregister_decoder(type_id: int) -> None:
    """Have no decoder for this type any more."""
    _decoders.pop(type_id, None)


def _decode(record: Record) -> Any:
    decoder = _decoders.get(record.type_id)
    if decoder is None:
        raise UnknownMessage(
            f"no message is registered for this type: type_id=0x{record.type_id:04X}",
            hint="import the module that defines it, or take the bytes by record.payload",
        )
    return decoder(record)


_native.decode_record = _decode
