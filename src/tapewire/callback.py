"""The signature of compiled callbacks for `for_each`.

A compiled callback receives the fields of a record, the address of its payload and the address of
the `data` that was passed to `for_each`. It runs without the GIL, so it must not touch Python
objects; it returns True to continue and False to stop. The payload is valid during the call.

Exceptions cannot propagate out of compiled code: numba prints them and the iteration stops. A
Python function wrapped by ctypes must catch all exceptions, KeyboardInterrupt included, and return
False: ctypes prints what escapes, and the result is undefined.

Example:
    A C function of a shared library has this signature. Declare it on its ctypes pointer with
    `restype` and `argtypes` (those of `RECORD_CALLBACK`):

    ``bool on_record(uint64_t seq, int64_t timestamp_ns, uint16_t type_id, uint16_t flags,
    const uint8_t *payload, uint32_t size, void *data)``

    A Python function wrapped by ctypes is accepted as well; it takes the GIL for each record:

    >>> import tapewire as tw
    >>> from tapewire.callback import RECORD_CALLBACK
    >>> seen = []
    >>> @RECORD_CALLBACK
    ... def note(seq, timestamp_ns, type_id, flags, payload, size, data):
    ...     seen.append((seq, size))
    ...     return True
    >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
    ...     _ = writer.append_batch(1, [b"one", b"four"])
    >>> with tw.open_log(tmp / "q") as reader:
    ...     reader.for_each(note)
    2
    >>> seen
    [(0, 3), (1, 4)]
"""

from __future__ import annotations

import ctypes
from _ctypes import CFuncPtr
from typing import Any

__all__ = ["RECORD_CALLBACK", "address_of", "numba_signature", "pointer_of"]

# seq, timestamp_ns, type_id, flags, payload, size, data
RECORD_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_bool,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_uint16,
    ctypes.c_uint16,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_void_p,
)

_SIGNATURE = (
    "bool(uint64 seq, int64 timestamp_ns, uint16 type_id, uint16 flags, "
    "pointer payload, uint32 size, pointer data)"
)


def numba_signature() -> Any:
    """Return the signature of a callback for `numba.cfunc`.

    `payload` is a pointer to bytes; `numba.carray(data, shape, dtype)` makes an array of `data`.
    """
    from numba import types

    bytes_pointer: Any = types.CPointer
    return types.boolean(
        types.uint64,
        types.int64,
        types.uint16,
        types.uint16,
        bytes_pointer(types.uint8),
        types.uint32,
        types.voidptr,
    )


def pointer_of(fn: Any) -> Any:
    """Return the ctypes pointer to compiled code, or None if `fn` is an ordinary Python callable.

    Raises:
        TypeError: The signature of the code differs, or is not declared.
    """
    # A numba cfunc has its ctypes pointer as an attribute.
    pointer = fn if isinstance(fn, CFuncPtr) else getattr(fn, "ctypes", None)
    if not isinstance(pointer, CFuncPtr):
        return None
    if not _fits(pointer):
        raise TypeError(f"a compiled callback must be declared as {_SIGNATURE}: fn={fn!r}")
    return pointer


def address_of(pointer: Any) -> int:
    """Return the address that a function pointer holds."""
    # Not by a cast, which would create a reference cycle.
    return ctypes.c_void_p.from_buffer(pointer).value or 0


def _fits(pointer: Any) -> bool:
    wanted: Any = RECORD_CALLBACK
    given = pointer.argtypes or ()
    needs_gil = pointer._flags_ & 4  # FUNCFLAG_PYTHONAPI: ctypes.pythonapi, PyDLL
    return (
        bool(pointer)
        and not needs_gil
        and pointer.restype is wanted._restype_
        and len(given) == len(wanted._argtypes_)
        and all(
            have is want or (want is ctypes.c_void_p and issubclass(have, ctypes._Pointer))
            for have, want in zip(given, wanted._argtypes_, strict=True)
        )
    )
