# Book events for the modules above: their fields in the native core.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool

from tapewire._native cimport RecordView, byte, raise_python_error

cdef extern from "tapewire/format/market.hpp" namespace "tapewire::format":
    cppclass BookEventHeader:
        uint16_t schema_version
        uint32_t record_len
        uint8_t endianness
        uint16_t venue_id
        uint32_t market_id
        uint32_t stream_id
        uint64_t ingest_ts_ns
        uint64_t exchange_ts_ns
        uint64_t seq
        uint64_t native_seq
        uint8_t event_type
        uint8_t book_mode
        uint16_t flags

    cppclass L3Event:
        uint8_t event_type
        uint8_t side
        uint8_t ord_type
        uint8_t exec_type
        uint8_t price_scale
        uint8_t size_scale
        uint32_t flags
        uint64_t order_id
        uint64_t bid_order_id
        uint64_t ask_order_id
        int64_t price
        int64_t qty
        int64_t amt

    cppclass Loss:
        uint64_t first
        uint64_t last
        uint16_t cause

    cppclass Level:
        int64_t price
        int64_t size

cdef extern from "tapewire/market/event.hpp" namespace "tapewire::market":
    cppclass CBookEvent "tapewire::market::BookEvent":
        BookEventHeader head
        uint8_t price_scale
        uint8_t size_scale
        cbool delta
        uint64_t update_first
        uint64_t update_last
        uint64_t update_prev
        const byte* bids
        uint32_t bid_count
        const byte* asks
        uint32_t ask_count
        L3Event order
        Loss loss

    CBookEvent decode_book_event(const RecordView&) except +raise_python_error


cdef class BookEvent:
    cdef CBookEvent event     # its levels are in `_source`
    cdef object _source       # a Record, or another immutable buffer

    cdef object _levels(self, const byte* levels, uint32_t count)


cdef BookEvent book_event_of(object source)
