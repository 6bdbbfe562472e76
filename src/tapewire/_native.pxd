# Shared by the modules of all kinds of log: the record, the batch, and a reader over any Cursor.
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

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
        shared_ptr[const vector[string]] source_names
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

    cdef enum class WaitKind:
        busy_spin
        spin_then_park
        sleep

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

    Walked for_each_record(Cursor&, RecordCallback, void*, size_t,
                           int64_t) except +raise_python_error nogil

cdef extern from *:
    """
    #include <time.h>
    static inline void tw_nap(long ns) { struct timespec t = {0, ns}; nanosleep(&t, 0); }
    static inline void tw_nap_1ms() { tw_nap(1000000); }
    static inline void tw_nap_50us() { tw_nap(50000); }
    """
    void nap_1ms "tw_nap_1ms"() nogil
    void nap_50us "tw_nap_50us"() nogil


cdef class Keeper:
    """Keeps one mapping alive for the views into it."""

    cdef MappingRef ref


cdef class Views:
    cdef Keeper keeper
    cdef object source        # name of the fan-in source that the mapping belongs to, or None
    cdef object whole         # a memoryview of the entire mapping
    cdef object _newer
    cdef object _older
    cdef object of(self, const byte* data, Py_ssize_t size)


cdef Views views_of(const MappingRef* owner, object source)


cdef class SourceOfBatch


cdef class Record:
    cdef readonly uint64_t seq
    cdef readonly int64_t timestamp_ns
    cdef readonly uint16_t type_id
    cdef readonly uint16_t flags
    cdef const byte* _data
    cdef Py_ssize_t _size
    cdef object _keeper       # keeps the bytes alive: the views of a mapping, or a batch


cdef class Batch:
    cdef shared_ptr[BatchColumns] _columns
    cdef size_t _from, _to    # the range of the columns that is this batch
    cdef dict _arrays

    cdef object _bytes(self, const void* data, size_t size)
    cdef object _array(self, str name, const void* data, size_t item_bytes, str dtype)
    cdef list _names(self)
    cdef Record _record(self, Py_ssize_t index)
    cdef SourceOfBatch _source_of(self, size_t i)


cdef class SourceOfBatch:
    cdef Batch batch
    cdef object source


cdef inline int64_t seconds_to_ns(double seconds):
    return <int64_t> (min(seconds, 4e9) * 1e9)


cdef int64_t time_to_seek(object ns) except? -1


cdef int wait_option(object wait, WaitKind* kind, int64_t* ns) except -1


cdef class Descriptor:
    cdef int fd
    cdef object also          # another one that is kept as long


cdef class CursorReader:
    cdef Cursor* _cursor      # owned by the subclass; NULL once closed, and while lent
    cdef Cursor* _lent_cursor # the same, while lent
    cdef PyObject* _borrower  # the reader that moves this one, or NULL; not a counted reference
    cdef uint16_t _slot       # the slot of this reader in it
    cdef Views _views         # of the mapping of the last record
    cdef bint _busy           # a call that has released the GIL is running
    cdef unsigned long _busy_thread
    cdef bint _closing        # close() was called
    cdef bint _close_later    # by a signal handler inside the busy call

    cdef bint _forked(self)
    cdef int _check(self) except -1
    cdef int _check_still(self) except -1
    cdef int _lend(self, CursorReader borrower) except -1
    cdef void _take_back(self) noexcept
    cdef void _forget_lent(self, CursorReader lent) noexcept
    cdef bint _moving(self) noexcept
    cdef int _release_lent(self, CursorReader lent) except -1
    cdef int _recall(self) except -1
    cdef int _enter_call(self) except -1
    cdef int _leave_call(self) except -1
    cdef object _wrap(self, RecordView* view)
    cdef void _following(self, bint on)
    cdef object _next_of(self, bint follow)
    cdef bint _closed(self)
    cdef void _interrupt(self)
    cdef bint _may_close(self) except -1
    cdef bint _await_rest(self) except -1
    cdef Descriptor _ready_copy(self)
