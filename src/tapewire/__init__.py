"""Tapewire: the tape of a trading system.

A process appends a message in tens of nanoseconds; every other process on the host follows it
live or replays it from any sequence number or time.
"""

import sys as _sys

from tapewire.config import (
    Block,
    BusySpin,
    FlushEvery,
    Raise,
    Retention,
    Seq,
    Sleep,
    SpinThenPark,
    Time,
    WriterConfig,
)
from tapewire.errors import *  # noqa: F403 - the list is errors.__all__
from tapewire.errors import __all__ as _errors
from tapewire.log import Batch, Kind, Reader, Record, kind_of, open_log, register_kinds
from tapewire.protocol import (
    Message,
    bool8,
    char,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    message,
    raw,
    u8,
    u16,
    u32,
    u64,
)
from tapewire.queue import DisconnectReason, WriterStatus, open_publisher, open_subscriber
from tapewire.sigbus import guard_beside_faulthandler as _guard_beside_faulthandler

__all__ = [  # noqa: PLE0604 - errors.__all__ is a list of strings
    "Batch",
    "Block",
    "BusySpin",
    "DisconnectReason",
    "FlushEvery",
    "Message",
    "Raise",
    "Reader",
    "Record",
    "Retention",
    "Seq",
    "Sleep",
    "SpinThenPark",
    "Time",
    "WriterConfig",
    "WriterStatus",
    "bool8",
    "char",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "kind_of",
    "message",
    "open_log",
    "open_publisher",
    "open_subscriber",
    "raw",
    "u8",
    "u16",
    "u32",
    "u64",
    *_errors,
]

# A free-threaded interpreter enables the GIL when it loads our modules, unless that is disabled.
if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "tapewire needs the GIL, which protects the state of its handles, and it is disabled in "
        "this interpreter: remove PYTHON_GIL=0 and -X gil=0, or use a build of Python with the GIL"
    )

_guard_beside_faulthandler()

# The table of kinds: how a log is recognised, and which module reads it.
register_kinds([Kind("queue", "tapewire.queue", marker="control.meta")])


def __getattr__(name: str) -> str:
    """Return `__version__`, read from the metadata of the installed package on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tapewire")
    raise AttributeError(f"module 'tapewire' has no attribute {name!r}")
