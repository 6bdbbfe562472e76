# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Market data messages, on the native core: decoding, encoding, decimals, hashes."""

from cpython.buffer cimport (PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDED_RO, PyBuffer_Release,
                             PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_Check
from cython.operator cimport dereference as deref
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from tapewire._native cimport Batch, BatchColumns, Record

from collections import namedtuple

from tapewire.errors import InvalidMessage

include "market_structs.pxi"
include "market_events.pxi"
include "market_encode.pxi"
include "market_decimals.pxi"
