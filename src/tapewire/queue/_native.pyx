# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The writer and the reader of a queue, on the native engine."""

from cpython.buffer cimport (PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release,
                             PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport (PyLong_AsLongAndOverflow, PyLong_AsLongLongAndOverflow, PyLong_Check,
                           PyLong_CheckExact)
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.pythread cimport (PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
                               PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock)
from cython.operator cimport dereference as deref
from libcpp.memory cimport make_unique
from libcpp.utility cimport move

cimport cython

import enum
import logging
import os
from collections import namedtuple

from tapewire.clock import to_ns
from tapewire.config import Block, Seq, Time
from tapewire.errors import (ClosedHandle, ConcurrentUse, InvalidMessage, InvalidOption,
                             InvalidTypeId, TapewireError)

_log = logging.getLogger("tapewire.queue")

Position = namedtuple("Position", "segment offset")
Position.__doc__ = """A place in a queue: the number of a segment and a byte offset in it."""

WriterStatus = namedtuple("WriterStatus", "alive pid epoch heartbeat_age")
WriterStatus.__doc__ = """The writer of a queue as seen by a reader; `heartbeat_age` in seconds."""


# The size of a record's header in a segment.
RECORD_HEADER_BYTES = kRecordHeaderBytes


class DisconnectReason(enum.Enum):
    """Why a reader should consider its writer gone."""

    LOCK_LOST = "lock_lost"
    HEARTBEAT_STALE = "heartbeat_stale"
    SEGMENT_MISSING = "segment_missing"


cdef extern from *:
    """
    // The value of a small non-negative int (every type id is one), or -1; without a call.
    static inline long tw_small_int(PyObject* o) {
        if (!PyLong_CheckExact(o)) return -1;
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyUnstable_Long_IsCompact((PyLongObject*)o)) return -1;
        return (long)PyUnstable_Long_CompactValue((PyLongObject*)o);
    #else
        if (Py_SIZE(o) == 1) return (long)((PyLongObject*)o)->ob_digit[0];
        return Py_SIZE(o) == 0 ? 0 : -1;
    #endif
    }
    """
    long tw_small_int(object)


cdef inline int _to_u16(object value, uint16_t* out) except -1:
    # 0 if it fits in 16 bits, else 1. Raises TypeError for anything that is not an integer.
    cdef int overflow = 0
    cdef long number = tw_small_int(value)
    if number < 0:
        if not PyLong_Check(value):
            value = value.__index__() if hasattr(value, "__index__") else _not_an_int(value)
        number = PyLong_AsLongAndOverflow(value, &overflow)
    if overflow != 0 or number < 0 or number > 0xFFFF:
        return 1
    out[0] = <uint16_t> number
    return 0


def _not_an_int(value):
    raise TypeError(f"not an integer: {value!r}")


cdef inline uint16_t _type_id(object value) except? 0xFFFF:
    cdef uint16_t out = 0
    if _to_u16(value, &out) != 0 or out == 0xFFFF:
        raise InvalidTypeId(f"type_id must be from 0 to 0xFFFE: type_id={value!r}",
                            hint="0xFFFF is the type of padding")
    return out


cdef inline uint16_t _flags(object value) except? 0xFFFF:
    cdef uint16_t out = 0
    if _to_u16(value, &out) != 0 or (out & 0xFF) != 0:
        raise InvalidOption(f"flags must be 16 bits with the low 8 clear: flags={value!r}",
                            hint="the low 8 bits are reserved; use 0x0100 … 0xFF00")
    return out


cdef uint64_t _timestamp(object value) except? 0xFFFFFFFFFFFFFFFF:
    cdef int overflow = 0
    cdef long long number
    if PyLong_CheckExact(value):  # the common case in replays, millions of times
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0 and number >= 0:
            return <uint64_t> number
    ns = to_ns(value)
    if not 0 <= ns < 2**63:
        raise InvalidOption(f"timestamp_ns must be from 0 to 2**63 - 1: timestamp_ns={ns}")
    return ns


cdef uint64_t _number(object value) except? 0xFFFFFFFFFFFFFFFF:
    if not hasattr(value, "__index__"):
        _not_an_int(value)
    if not 0 <= value < 2**64 - 1:
        raise InvalidOption(f"seq must be from 0 to 2**64 - 2: seq={value!r}")
    return value


include "payloads.pxi"
include "writer.pxi"
include "reader.pxi"
include "status.pxi"
include "upkeep.pxi"
