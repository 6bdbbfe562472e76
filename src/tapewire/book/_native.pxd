# Books for the modules above: wrap_book turns a native book in a shared_ptr into a Python object.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from tapewire._native cimport BatchColumns, byte, raise_python_error
from tapewire.protocol._native cimport CBookEvent, Level as CLevel

cdef extern from "tapewire/format/market.hpp" namespace "tapewire::format":
    cdef enum class CSide "tapewire::format::Side":
        unknown
        buy
        sell

    cdef enum class CBookMode "tapewire::format::BookMode":
        l2
        l3

cdef extern from "tapewire/xxhash.hpp" namespace "tapewire":
    cppclass Hash128:
        uint64_t low
        uint64_t high

cdef extern from "tapewire/book/types.hpp" namespace "tapewire::book":
    cdef enum class GapPolicy:
        pass

    cdef enum class Rules:
        pass

    cdef enum class Unknown:
        pass

    cdef enum class Distrust:
        pass

    cdef enum class Applied:
        pass

    const char* name_of(Distrust)

    cppclass Options:
        CBookMode mode
        uint8_t price_scale
        uint8_t size_scale
        Rules rules
        GapPolicy on_gap
        Unknown unknown

    cppclass LevelRow:
        int64_t price
        int64_t size
        uint32_t orders

    cppclass TopRow:
        pass

    cppclass CGap "tapewire::book::Gap":
        Distrust cause
        uint64_t first
        uint64_t last
        uint64_t seq
        int64_t timestamp_ns
        cbool resynced

cdef extern from "tapewire/book/book.hpp" namespace "tapewire::book":
    cppclass OrderRow:
        uint64_t id
        int64_t price
        int64_t remaining
        CSide side
        cbool rests

    cppclass CBook "tapewire::book::Book":
        CBook(const Options&) except +raise_python_error
        Applied apply(const CBookEvent&, uint64_t) except +raise_python_error
        void record_gap(uint64_t, uint64_t) except +raise_python_error
        void release()
        cbool best(CSide, CLevel&)
        size_t top(CSide, size_t, LevelRow*)
        size_t level_count(CSide)
        int64_t depth(CSide, size_t)
        cbool crossed()
        Hash128 hash()
        cbool trusted()
        Distrust distrust()
        string distrust_reason() except +
        cbool quarantined()
        const vector[CGap]& gaps()
        const Options& options()
        uint64_t last_update()
        uint64_t last_seq()
        int64_t last_timestamp_ns()
        uint64_t last_exchange_ns()
        uint32_t phase()
        size_t waiting()
        cbool order(uint64_t, OrderRow&)
        cbool queue_position(uint64_t, uint64_t&, int64_t&)
        vector[OrderRow] orders(CSide, int64_t) except +
        uint32_t order_count_at "order_count"(CSide, int64_t)
        size_t order_count()
        uint64_t unknown_count()
        size_t memory_bytes()
        void save(vector[byte]&) except +raise_python_error


# Mutual exclusion of the objects that share native books: one flag for all of them, under the GIL.
cdef class Turn:
    cdef bint taken           # a call that has released the GIL is running

    cdef int take(self) except -1


cdef class Book:
    cdef shared_ptr[CBook] _book
    cdef Turn _turn

    cdef CBook* _native(self) except NULL
    cdef object _levels(self, CSide side, object n)
    cdef object _best(self, CSide side)


# An L2Book or an L3Book, like the native one. `turn` is shared with others that change the same
# book.
cdef Book wrap_book(shared_ptr[CBook] book, Turn turn=*)
