# What the modules of the kinds of log share: the record, the batch, and a reader over any Cursor.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr

cdef extern from "tapewire/translate.hpp" namespace "tapewire":
    void raise_python_error()

cdef extern from "<cstddef>" namespace "std":
    cppclass byte "std::byte":
        pass

cdef extern from "tapewire/mapping.hpp" namespace "tapewire":
    cppclass CMapping "const tapewire::Mapping":
        byte* data()
        size_t size()

    cppclass MappingRef:
        MappingRef()
        void reset()
        const CMapping* get()
        bint operator==(const MappingRef&)

cdef extern from "tapewire/cursor.hpp" namespace "tapewire":
    cppclass RecordView:
        const byte* payload
        uint32_t payload_len
        uint16_t type_id
        uint16_t flags
        uint64_t seq
        int64_t timestamp_ns
        const MappingRef* owner

    cppclass BatchColumns:
        unique_ptr[uint64_t[]] seq
        unique_ptr[int64_t[]] timestamp_ns
        unique_ptr[uint16_t[]] type_id
        unique_ptr[uint16_t[]] flags
        size_t size()

    cppclass TypeFilter:
        TypeFilter()
        void want(uint16_t)

    cppclass Skipped:
        uint64_t segment
        uint64_t offset
        uint64_t bytes
        bint numbers_known
        uint64_t first_seq
        uint64_t last_seq

    cdef enum class WaitOutcome:
        ready
        not_yet
        interrupted

    cppclass Cursor:
        bint next(RecordView&) except +raise_python_error
        size_t read_batch(BatchColumns&, size_t) except +raise_python_error nogil
        WaitOutcome wait(int64_t) except +raise_python_error nogil
        int ready_fd() except +raise_python_error nogil
        bint seek_seq(uint64_t) except +raise_python_error nogil
        bint seek_time(int64_t) except +raise_python_error nogil
        bint seek_start() except +raise_python_error nogil
        void seek_end() except +raise_python_error nogil
        Skipped skip_damaged() except +raise_python_error nogil

    cppclass RecordCallback:
        pass

    cppclass Walked:
        size_t records
        bint refused
        bint at_end

    Walked for_each_record(Cursor&, RecordCallback, void*, size_t, int64_t) except +raise_python_error nogil


cdef class Keeper:
    """Keeps one mapping alive for whoever looks into it."""

    cdef MappingRef ref


cdef class Views:
    cdef object whole         # a memoryview of all of the mapping
    cdef object _newer
    cdef object _older
    cdef object of(self, const byte* data, Py_ssize_t size)


cdef class Record:
    cdef readonly uint64_t seq
    cdef readonly int64_t timestamp_ns
    cdef readonly uint16_t type_id
    cdef readonly uint16_t flags
    cdef const byte* _data
    cdef Py_ssize_t _size
    cdef object _keeper       # what keeps the bytes: the views of a mapping, or a batch


cdef class Descriptor:
    cdef int fd


cdef class CursorReader:
    cdef Cursor* _cursor      # owned by the subclass; NULL once closed
    cdef Keeper _keeper       # of the mapping that the last record lay in
    cdef Views _views         # of that mapping
    cdef bint _busy           # a call that has released the GIL is under way
    cdef unsigned long _busy_thread
    cdef bint _closing        # close() was called
    cdef bint _close_later    # by a signal handler inside the busy call: when that ends

    cdef bint _forked(self)
    cdef int _check(self) except -1
    cdef int _enter_call(self) except -1
    cdef int _leave_call(self) except -1
    cdef object _wrap(self, RecordView* view)
    cdef int _remember(self, RecordView* view) except -1
    cdef bint _closed(self)
    cdef int _close_now_as_asked(self) except -1
    cdef Descriptor _ready_copy(self)
