# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Record, Batch and the methods that all readers share, over any native cursor."""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer)
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cython.operator cimport dereference as deref
from libcpp.memory cimport make_shared
from libcpp.string cimport string
from posix.unistd cimport close

import os
import sys
from collections import namedtuple
from math import inf

from tapewire.clock import to_ns
from tapewire.config import BusySpin, Sleep, SpinThenPark
from tapewire.errors import ClosedHandle, ConcurrentUse, InvalidOption

cdef extern from "tapewire/clock.hpp" namespace "tapewire":
    int64_t mono_ns() nogil
    int64_t wall_ns() nogil
    void c_shift_wall_clock "tapewire::shift_wall_clock"(int64_t) nogil

cdef extern from "tapewire/checksum.hpp" namespace "tapewire":
    cdef enum class ChecksumImpl:
        automatic
        portable
    void c_select_checksum "tapewire::select_checksum"(ChecksumImpl)
    const char* c_checksum_impl_name "tapewire::checksum_impl_name"()

cdef extern from "tapewire/mapping.hpp" namespace "tapewire":
    void c_guard_against_sigbus_now "tapewire::guard_against_sigbus_now"() nogil

cdef extern from "tapewire/name.hpp":
    """
    static inline std::string tw_name_rule() { return std::string(tapewire::kNameRule); }
    static inline bool tw_is_name(const std::string& name) { return tapewire::is_name(name); }
    """
    string tw_name_rule()
    bint tw_is_name(const string&)

cdef extern from "tapewire/process.hpp":
    """
    static inline int64_t tw_start_ticks(int64_t pid) {
        const auto ticks = tapewire::process_start_ticks(pid);
        return ticks ? static_cast<int64_t>(*ticks) : -1;
    }
    """
    int64_t tw_start_ticks(int64_t) except + nogil

cdef extern from "tapewire/arrow.hpp":
    cdef struct ArrowSchema:
        void (*release)(ArrowSchema*) noexcept nogil
    cdef struct ArrowArray:
        void (*release)(ArrowArray*) noexcept nogil
    cdef struct ArrowArrayStream:
        void (*release)(ArrowArrayStream*) noexcept nogil
    ctypedef shared_ptr[const BatchColumns] ColumnsRef "tapewire::ColumnsRef"
    void export_schema "tapewire::export_schema"(const ColumnsRef&, ArrowSchema*) except +
    void export_array "tapewire::export_array"(const ColumnsRef&, size_t, size_t,
                                               ArrowArray*) except +
    void export_stream "tapewire::export_stream"(const ColumnsRef&, size_t, size_t,
                                                 ArrowArrayStream*) except +

cdef extern from *:
    """
    #include "tapewire/cursor.hpp"
    // Cython cannot express a unique_ptr to an array of pointers.
    static const std::byte* tw_payload(const tapewire::BatchColumns& c, size_t i) {
        return c.payload[i];
    }
    static uint32_t tw_payload_len(const tapewire::BatchColumns& c, size_t i) {
        return c.payload_len[i];
    }
    static const void* tw_seq(const tapewire::BatchColumns& c) { return c.seq.get(); }
    static const void* tw_time(const tapewire::BatchColumns& c) { return c.timestamp_ns.get(); }
    static const void* tw_type(const tapewire::BatchColumns& c) { return c.type_id.get(); }
    static const void* tw_flags(const tapewire::BatchColumns& c) { return c.flags.get(); }
    static const void* tw_source(const tapewire::BatchColumns& c) { return c.source.get(); }
    // The stride of the payloads [from, to), if it is the same for all and they are in one mapping;
    // else 0. -1: not all have `size` bytes.
    static int64_t tw_stride(const tapewire::BatchColumns& c, size_t from, size_t to, size_t size) {
        for (size_t i = from; i < to; ++i)
            if (c.payload_len[i] != size) return -1;
        if (c.owners.size() != 1) return 0;
        if (to - from < 2) return (int64_t)size;
        const int64_t stride = c.payload[from + 1] - c.payload[from];
        for (size_t i = from + 1; i < to; ++i)
            if (c.payload[i] - c.payload[i - 1] != stride) return 0;
        return stride;
    }
    static void tw_gather(const tapewire::BatchColumns& c, size_t from, size_t to, size_t size,
                          void* into) {
        char* at = static_cast<char*>(into);
        for (size_t i = from; i < to; ++i, at += size) memcpy(at, c.payload[i], size);
    }
    """
    const byte* tw_payload(const BatchColumns&, size_t) nogil
    uint32_t tw_payload_len(const BatchColumns&, size_t) nogil
    const void* tw_seq(const BatchColumns&) nogil
    const void* tw_time(const BatchColumns&) nogil
    const void* tw_type(const BatchColumns&) nogil
    const void* tw_flags(const BatchColumns&) nogil
    const void* tw_source(const BatchColumns&) nogil
    int64_t tw_stride(const BatchColumns&, size_t, size_t, size_t) nogil
    void tw_gather(const BatchColumns&, size_t, size_t, size_t, void*) nogil

SkippedSpan = namedtuple("SkippedSpan", "segment offset bytes first_seq last_seq")
SkippedSpan.__doc__ = """What `skip_damaged` skipped; the sequence numbers are None if unknown."""

# Set by tapewire.log: finds the decoder for the type of a record.
decode_record = None


def shift_wall_clock(int64_t ns):
    """Shift the wall clock of this process; for tests of clock jumps."""
    c_shift_wall_clock(ns)


def wall_clock_ns():
    """The wall clock that timestamps records, in nanoseconds."""
    return wall_ns()


def select_checksum(str name):
    """Select the "automatic" or the "portable" checksum code; for tests of the fallback."""
    if name not in ("automatic", "portable"):
        raise ValueError(f"unknown implementation: name={name!r}")
    c_select_checksum(ChecksumImpl.portable if name == "portable" else ChecksumImpl.automatic)
    return (<bytes> c_checksum_impl_name()).decode()


NAME_RULE = (<bytes> tw_name_rule()).decode()


def is_name(str name):
    """Whether a name is allowed as the name of a file or directory."""
    return <bint> tw_is_name(name.encode("utf-8", "backslashreplace"))


def guard_against_sigbus_now():
    """Reinstall the SIGBUS handler for mapped files; other signals go to the handler it replaces.

    Does nothing until a file has been mapped.
    """
    with nogil:
        c_guard_against_sigbus_now()


def process_start_ticks(int64_t pid):
    """The start time of a process in clock ticks since boot; None if there is no such process.

    A pid can be reused; a pid with its start time is unique.
    """
    cdef int64_t ticks
    with nogil:
        ticks = tw_start_ticks(pid)
    return None if ticks < 0 else ticks


cdef class Yardstick:
    """Empty native methods with the signatures of the hot calls, as a baseline for measurements."""

    def append(self, type_id, payload, timestamp_ns=None, flags=0, seq=None):
        return None

    def next(self):
        return None


@cython.no_gc
cdef class Keeper:
    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.ref.get() is NULL:
            raise BufferError("no mapping")
        PyBuffer_FillInfo(buffer, self, self.ref.get().data(), self.ref.get().size(), 1, flags)


cdef extern from *:
    """
    // A view of a view shares the managed buffer: one allocation instead of two. The new view's
    // own Py_buffer, whose shape is inside the object, is then narrowed to the payload, as slicing
    // does.
    static inline void tw_narrow(PyObject* view, const void* data, Py_ssize_t size) {
        Py_buffer* b = PyMemoryView_GET_BUFFER(view);
        b->buf = (void*)data;
        b->len = size;
        b->shape[0] = size;
    }
    // Whether this view can be reused without its only owner noticing: no other reference, buffer
    // or weak reference leads to it. If so, prepares it for that.
    static inline int tw_take_back(PyObject* view) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        PyMemoryViewObject* v = (PyMemoryViewObject*)view;
        if (Py_REFCNT(view) != 1 || v->exports != 0 || v->weakreflist != NULL ||
            (v->flags & _Py_MEMORYVIEW_RELEASED) != 0) return 0;
        v->hash = -1;
        return 1;
    #endif
    }
    """
    void tw_narrow(object view, const void* data, Py_ssize_t size)
    bint tw_take_back(object view)


@cython.final
@cython.no_gc
cdef class Views:
    """Creates the payload views of one mapping.

    Allocating a memoryview costs as much as reading the record, and most views are dropped before
    the next one is needed. The last two are therefore kept and reused when there is no other
    reference to them. Two, because ``payload = record.payload`` drops the old view only after it
    has the new one.
    """

    cdef object of(self, const byte* data, Py_ssize_t size):
        view = self._older
        self._older = self._newer  # now `view` is our only reference
        if view is None or not tw_take_back(view):
            view = PyMemoryView_FromObject(self.whole)
        self._newer = view
        tw_narrow(view, data, size)
        return view


# Allocating may run the garbage collector, hence arbitrary code.
cdef Views views_of(const MappingRef* owner, object source):
    cdef Views views = Views.__new__(Views)
    views.keeper = Keeper.__new__(Keeper)
    views.keeper.ref = deref(owner)
    views.source = source
    views.whole = PyMemoryView_FromObject(views.keeper)
    return views


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Record:
    """One record of a log.

    `payload` is a read-only memoryview into the mapped file, created on access. Nothing is copied,
    and the view stays valid while it is referenced, even if the segment is removed.
    """

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*> self._data, self._size, 1, flags)

    @property
    def payload(self):
        """The payload as a read-only memoryview, without a copy."""
        cdef Batch batch
        if type(self._keeper) is Views:
            return (<Views> self._keeper).of(self._data, self._size)
        # A record of a batch, which may span mappings.
        if type(self._keeper) is SourceOfBatch:
            batch = (<SourceOfBatch> self._keeper).batch
        else:
            batch = <Batch> self._keeper
        return PyMemoryView_FromObject(batch._bytes(self._data, self._size))

    @property
    def source(self):
        """Name of the source if a `FanInReader` read the record; else None."""
        if type(self._keeper) is Views:
            return (<Views> self._keeper).source
        if type(self._keeper) is SourceOfBatch:
            return (<SourceOfBatch> self._keeper).source
        return None

    def view(self, dtype):
        """Return the payload as a read-only numpy array of `dtype`, without a copy."""
        import numpy
        return numpy.frombuffer(self, dtype)

    def decode(self):
        """Decode the payload as the message registered for `type_id`."""
        return decode_record(self)

    def __len__(self):
        return self._size

    def __bool__(self):
        """Always true: ``while record := reader.next()`` does not end at an empty payload."""
        return True

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        cdef Record o = <Record> other
        return (self.seq == o.seq and self.timestamp_ns == o.timestamp_ns
                and self.type_id == o.type_id and self.flags == o.flags
                and self.payload == o.payload)

    __hash__ = None

    def __repr__(self):
        cdef bytes head = bytes(self.payload[:16])
        more = "…" if self._size > 16 else ""
        source = f" source={self.source!r}" if self.source is not None else ""
        return (f"<Record{source} seq={self.seq} timestamp_ns={self.timestamp_ns} "
                f"type_id=0x{self.type_id:04X} flags=0x{self.flags:04X} "
                f"payload={self._size} bytes {head!r}{more}>")


@cython.no_gc
cdef class ColumnBytes:
    """A part of a batch's memory as a read-only buffer."""

    cdef shared_ptr[BatchColumns] columns
    cdef const void* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*> self.data, self.size, 1, flags)


include "arrow.pxi"


@cython.final
cdef class SourceOfBatch:
    """Keeps the bytes of a record of a fan-in batch alive, and knows its source."""


cdef class Batch:
    """Many records as columns.

    `seq`, `timestamp_ns`, `type_id` and `flags` are read-only numpy arrays. Payloads stay in the
    mapped segments, which are kept as long as the batch or anything obtained from it is referenced.
    """

    def __cinit__(self):
        self._arrays = {}
        self._columns = make_shared[BatchColumns]()

    cdef object _bytes(self, const void* data, size_t size):
        cdef ColumnBytes piece = ColumnBytes.__new__(ColumnBytes)
        piece.columns = self._columns
        piece.data = data
        piece.size = size
        return piece

    cdef object _array(self, str name, const void* data, size_t item_bytes, str dtype):
        array = self._arrays.get(name)
        if array is None:
            import numpy
            if self._from == self._to:
                array = numpy.empty(0, dtype)
                array.flags.writeable = False
            else:
                array = numpy.frombuffer(
                    self._bytes(<const char*> data + self._from * item_bytes,
                                (self._to - self._from) * item_bytes), dtype)
            self._arrays[name] = array
        return array

    @property
    def seq(self):
        """Sequence numbers of the records, uint64."""
        return self._array("seq", tw_seq(deref(self._columns)), 8, "u8")

    @property
    def timestamp_ns(self):
        """Times of the records, int64 nanoseconds since the epoch."""
        return self._array("timestamp_ns", tw_time(deref(self._columns)), 8, "i8")

    @property
    def type_id(self):
        """Types of the records, uint16."""
        return self._array("type_id", tw_type(deref(self._columns)), 2, "u2")

    @property
    def flags(self):
        """Flags of the records, uint16."""
        return self._array("flags", tw_flags(deref(self._columns)), 2, "u2")

    cdef list _names(self):
        cdef const vector[string]* names = deref(self._columns).source_names.get()
        if names is NULL:
            return None
        return [deref(names)[i].decode() for i in range(names.size())]

    @property
    def source(self):
        """Names of the sources if a `FanInReader` read the batch; else None."""
        names = self._names()
        if names is None or "source" in self._arrays:
            return self._arrays.get("source")
        import numpy
        ids = self._array("source_id", tw_source(deref(self._columns)), 2, "u2")
        array = numpy.array(names or [""])[ids]
        array.flags.writeable = False
        self._arrays["source"] = array
        return array

    @property
    def payload_bytes(self):
        """Total size of the payloads in bytes."""
        cdef uint64_t total = 0
        cdef size_t i
        for i in range(self._from, self._to):
            total += tw_payload_len(deref(self._columns), i)
        return total

    def __len__(self):
        return self._to - self._from

    cdef Record _record(self, Py_ssize_t index):
        cdef size_t i = self._from + <size_t> index
        cdef BatchColumns* columns = self._columns.get()
        cdef Record record = Record.__new__(Record)
        record.seq = (<const uint64_t*> tw_seq(deref(columns)))[i]
        record.timestamp_ns = (<const int64_t*> tw_time(deref(columns)))[i]
        record.type_id = (<const uint16_t*> tw_type(deref(columns)))[i]
        record.flags = (<const uint16_t*> tw_flags(deref(columns)))[i]
        record._data = tw_payload(deref(columns), i)
        record._size = tw_payload_len(deref(columns), i)
        record._keeper = self
        if columns.source_names.get() is not NULL:
            record._keeper = self._source_of(i)
        return record

    cdef SourceOfBatch _source_of(self, size_t i):
        cdef SourceOfBatch keeper = SourceOfBatch.__new__(SourceOfBatch)
        cdef uint16_t slot = (<const uint16_t*> tw_source(deref(self._columns)))[i]
        keeper.batch = self
        keeper.source = deref(deref(self._columns).source_names)[slot].decode()
        return keeper

    def __getitem__(self, index):
        cdef Py_ssize_t i, start, stop, step
        cdef Batch part
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of a batch must have step 1: step={step}")
            part = Batch.__new__(Batch)
            part._columns = self._columns
            part._from = self._from + start
            part._to = self._from + max(start, stop)
            return part
        i = index
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"index out of range: index={index}, records={len(self)}")
        return self._record(i)

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(len(self)):
            yield self._record(i)

    def payload(self, i):
        """Return the payload of record `i` as a read-only memoryview, without a copy."""
        return self[int(i)].payload

    def view(self, dtype):
        """Return the payloads as a numpy array of `dtype`, which must have their size.

        Without a copy (strided over the mapping) if the records are evenly spaced in one segment,
        else with one copy.
        """
        import numpy
        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"dtype must not contain Python objects: dtype={dtype}")
        cdef size_t size = dtype.itemsize
        cdef size_t n = self._to - self._from
        if n == 0:
            return numpy.empty(0, dtype)
        cdef int64_t stride = tw_stride(deref(self._columns), self._from, self._to, size)
        if stride < 0:
            raise ValueError(f"not all payloads have the size of dtype: bytes={size}; "
                             "read a single type with types=")
        cdef const byte* first = tw_payload(deref(self._columns), self._from)
        if stride > 0:
            piece = self._bytes(first, (n - 1) * stride + size)
            return numpy.ndarray(n, dtype, buffer=piece, strides=(stride,))
        gathered = numpy.empty(n * size, "u1")
        cdef unsigned char[::1] into = gathered
        tw_gather(deref(self._columns), self._from, self._to, size, &into[0])
        gathered.flags.writeable = False
        return gathered.view(dtype)

    def __arrow_c_schema__(self):
        """Return the schema as an Arrow PyCapsule.

        The columns are seq, timestamp_ns, type_id, flags and payload (binary view). The batch of a
        fan-in has a sixth column, source (a dictionary of text).
        """
        return _schema_capsule(<ColumnsRef> self._columns)

    def __arrow_c_array__(self, requested_schema=None):
        """Return the batch as Arrow PyCapsules, without a copy; they keep the batch alive."""
        cdef ArrowArray* array = <ArrowArray*> PyMem_Malloc(sizeof(ArrowArray))
        if array is NULL:
            raise MemoryError
        array.release = NULL
        capsule = PyCapsule_New(array, "arrow_array", _free_array)
        export_array(<ColumnsRef> self._columns, self._from, self._to, array)
        return _schema_capsule(<ColumnsRef> self._columns), capsule

    def __arrow_c_stream__(self, requested_schema=None):
        """Return the batch as an Arrow stream of one chunk."""
        cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyMem_Malloc(sizeof(ArrowArrayStream))
        if stream is NULL:
            raise MemoryError
        stream.release = NULL
        capsule = PyCapsule_New(stream, "arrow_array_stream", _free_stream)
        export_stream(<ColumnsRef> self._columns, self._from, self._to, stream)
        return capsule

    def to_arrow(self):
        """Return a `pyarrow.RecordBatch` over the mapped segments; no payload is copied."""
        import pyarrow
        return pyarrow.record_batch(self)

    def to_pandas(self):
        """Return a pandas DataFrame; payloads become `bytes`."""
        return self.to_arrow().to_pandas()

    def to_polars(self):
        """Return a `polars.DataFrame`."""
        import polars
        return polars.DataFrame(self)

    def __repr__(self):
        if len(self) == 0:
            return "<Batch of 0 records>"
        return f"<Batch of {len(self)} records, seq {self.seq[0]} … {self.seq[len(self) - 1]}>"


include "cursor_reader.pxi"
