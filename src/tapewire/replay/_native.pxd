# The replay engine's declarations, as the .pyx files need them.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.optional cimport optional
from libcpp.vector cimport vector

from tapewire._native cimport Cursor, CursorReader, Record, RecordView, byte, raise_python_error
from tapewire.book._native cimport CBook, Hash128, Turn

cdef extern from "tapewire/replay/engine.hpp" namespace "tapewire::replay":
    cppclass CMarket "tapewire::replay::Market":
        uint32_t index
        uint16_t venue_id
        uint32_t market_id
        uint64_t symbol_hash
        shared_ptr[CBook] book
        cbool changed
        uint64_t rebuild_from

    cdef enum class TapeCause "tapewire::replay::TapeGap::Cause"(uint8_t):
        missing
        damaged
        unreadable

    cppclass CTapeGap "tapewire::replay::TapeGap":
        TapeCause cause
        cbool counted
        uint64_t first
        uint64_t last
        uint64_t seq
        int64_t timestamp_ns
        uint16_t source
        vector[CMarket*] markets

    cdef enum class Kind(uint8_t):
        book
        trade
        quote
        other
        gap

    cppclass CStep "tapewire::replay::Step":
        Kind kind
        uint8_t applied
        uint16_t source
        RecordView record
        int64_t time_ns
        CMarket* market
        const CTapeGap* gap

    cppclass EngineOptions:
        uint8_t on_gap
        uint8_t unknown
        cbool only_added
        cbool skip_damaged
        int64_t show_from_ns
        uint64_t show_from_seq
        int64_t end_ns
        cbool ends_at_seq
        uint64_t end_seq

    cppclass Limits:
        uint64_t records
        uint64_t bytes
        int64_t until_ns
        cbool at_roll
        cbool at_gap
        int64_t slice_ns

    cdef enum class Stop(uint8_t):
        end
        records
        bytes
        time
        roll
        gap
        slice

    cdef enum class Found "tapewire::replay::Engine::Found"(uint8_t):
        step
        end
        pause

    cppclass CEngine "tapewire::replay::Engine":
        CEngine(Cursor&, const EngineOptions&) except +raise_python_error
        void warm(CMarket&, shared_ptr[CBook], uint16_t, uint64_t,
                  int64_t) except +raise_python_error
        void saved(CMarket&)
        void lost_before(uint16_t, uint64_t, uint64_t) except +raise_python_error
        Found advance(CStep&, uint64_t) except +raise_python_error nogil
        Stop run(const Limits&) except +raise_python_error nogil
        uint64_t records()
        uint64_t events()
        uint64_t bytes()
        uint64_t rolls()
        optional[uint64_t] last_seq()
        int64_t last_timestamp_ns()
        int64_t clock_ns()
        uint64_t gap_changes()
        bint finished()
        const vector[unique_ptr[CMarket]]& markets()
        const vector[CTapeGap]& tape_gaps()
        Hash128 hash() nogil


cdef class Engine:
    cdef CEngine* _engine
    cdef CursorReader _reader
    cdef Turn _turn       # of the books too, which others may have
    cdef list _books      # by a market's index: its Python object, made when first seen
    cdef list _venues
    cdef list _symbols
    cdef str _on_gap
    cdef object _name_of  # (venue_id, market_id) to (venue, symbol)

    cdef int _check(self) except -1
    cdef int _check_idle(self) except -1
    cdef int _enter_call(self) except -1
    cdef int _leave_call(self) except -1
    cdef int _know(self, size_t index) except -1
    cdef object _book_of(self, CMarket* market)
    cdef object _step(self, CStep& found)
    cdef Found _pass_over(self, CStep& found) except *
    cdef str _action(self, bint resynced)
    cdef bint _is_resynced(self, CMarket* market, const CTapeGap* tape)
