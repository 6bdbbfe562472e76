# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The native parsers for files: text tables, groups of levels, ITCH."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector
from cpython.bytes cimport PyBytes_FromStringAndSize

import numpy as np

from tapewire._native cimport raise_python_error
from tapewire.errors import InvalidMessage


cdef extern from "<string_view>" namespace "std" nogil:
    cppclass string_view:
        string_view()
        string_view(const char*, size_t)

cdef extern from "tapewire/ingest/rows.hpp" namespace "tapewire::ingest" nogil:
    enum Kind "tapewire::ingest::Kind":
        pass
    enum Fault "tapewire::ingest::Fault":
        FAULT_NONE "tapewire::ingest::Fault::none"

    cppclass Column:
        Kind kind
        uint8_t scale
        cbool optional
        vector[string] words

    cppclass BadRow:
        uint64_t line
        uint64_t offset
        uint64_t length
        uint32_t column
        Fault fault

    int64_t kMissing
    Fault parse_decimal(string_view, uint8_t, cbool, int64_t&)

    cppclass CRowParser "tapewire::ingest::RowParser":
        CRowParser(vector[Column]) except +raise_python_error
        void set_fields(vector[uint32_t]) except +raise_python_error
        void set_keys(const vector[string]&) except +raise_python_error
        size_t parse_csv(string_view, cbool) except +raise_python_error
        size_t parse_pairs(string_view, cbool) except +raise_python_error
        const vector[int64_t]& rows()
        size_t width()
        const vector[BadRow]& bad()
        const vector[string]& texts()
        uint64_t line()
        void set_line(uint64_t)

cdef extern from "tapewire/ingest/l2_groups.hpp" namespace "tapewire::ingest" nogil:
    cppclass LevelRow:
        pass

    cppclass CL2Grouper "tapewire::ingest::L2Grouper":
        CL2Grouper(uint16_t, uint32_t, uint8_t, uint8_t) except +raise_python_error
        void add(const LevelRow*, size_t) except +raise_python_error
        void finish() except +raise_python_error
        const vector[uint64_t]& ends()
        const vector[int64_t]& timestamps_ns()
        const vector[int64_t]& lines()
        const vector[int64_t]& last_lines()
        int64_t open_line()
        void take()

cdef extern from "tapewire/ingest/itch.hpp" namespace "tapewire::ingest" nogil:
    enum ItchLengths "tapewire::ingest::ItchLengths":
        LENGTHS_PREFIX "tapewire::ingest::ItchLengths::prefix"
        LENGTHS_TYPE "tapewire::ingest::ItchLengths::type"
    enum ItchFault "tapewire::ingest::ItchFault":
        pass

    cppclass ItchEvent:
        pass

    cppclass ItchBad:
        uint64_t number
        uint64_t offset
        uint64_t length
        ItchFault fault

    size_t itch_length(char)

    cppclass CItchDecoder "tapewire::ingest::ItchDecoder":
        CItchDecoder(ItchLengths)
        const vector[ItchEvent]& events()
        const vector[ItchBad]& bad()
        uint64_t messages()
        uint64_t count(char)
        uint64_t unknown_orders()
        bint from_start()
        const vector[uint64_t]& out_of_order()
        string stock(uint16_t) except +raise_python_error

cdef extern from *:
    """
    #include <cstring>
    #include <span>
    static inline size_t tw_decode_itch(tapewire::ingest::ItchDecoder* decoder,
                                        const uint8_t* bytes, size_t n, bool last) {
        return decoder->decode(std::as_bytes(std::span(bytes, n)), last);
    }
    static inline void tw_copy_events(const tapewire::ingest::ItchDecoder* decoder, void* out) {
        std::memcpy(out, decoder->events().data(),
                    decoder->events().size() * sizeof(tapewire::ingest::ItchEvent));
    }
    static inline const char* tw_payloads(const tapewire::ingest::L2Grouper* grouper) {
        return reinterpret_cast<const char*>(grouper->payloads().data());
    }
    """
    size_t tw_decode_itch(CItchDecoder*, const uint8_t*, size_t,
                          cbool) except +raise_python_error nogil
    void tw_copy_events(const CItchDecoder*, void*) nogil
    const char* tw_payloads(const CL2Grouper*) nogil

KINDS = ("decimal", "rounded", "word", "text", "id", "clock", "date", "datetime")
FAULTS = ("none", "field_count", "empty", "not_a_number", "too_precise", "out_of_range",
          "unknown_word", "not_a_time", "not_a_pair", "repeated_key")
ITCH_FAULTS = ("none", "unknown_type", "wrong_length", "cut_short", "bad_time", "bad_side",
               "bad_stock", "out_of_range", "no_stock", "known_order")
MISSING = kMissing
SKIP = 0xFFFFFFFF
LEVEL_ROW_FIELDS = 8
ITCH_DTYPE = np.dtype([
    ("time_ns", "<u8"), ("number", "<u8"), ("order_id", "<u8"), ("match", "<u8"), ("price", "<i8"),
    ("size", "<i8"), ("locate", "<u2"), ("message", "u1"), ("l3_type", "u1"), ("side", "u1"),
    ("printed", "u1"), ("maker", "u1"), ("auction", "u1"),
])
assert ITCH_DTYPE.itemsize == sizeof(ItchEvent)


def decimal(const uint8_t[::1] text, uint8_t scale, bint rounded=False):
    """Return the number at a scale as an int, or the name of its fault."""
    cdef int64_t value = 0
    cdef const char* p = NULL
    if text.shape[0]:
        p = <const char*>&text[0]
    cdef Fault fault = parse_decimal(string_view(p, <size_t>text.shape[0]), scale, rounded, value)
    return value if fault == FAULT_NONE else FAULTS[<int>fault]


def message_length(str kind):
    """Return the size of an ITCH message of this type, or 0."""
    code = kind.encode("latin-1")
    return itch_length(code[0]) if len(code) == 1 else 0


cdef class RowParser:
    """Converts lines of text to rows of integers; see rows.hpp.

    Args:
        columns: ``(kind, scale, optional, words)`` of each column.
    """

    cdef CRowParser* _parser
    cdef object _texts

    def __cinit__(self, columns):
        cdef vector[Column] plan
        cdef Column column
        for kind, scale, optional, words in columns:
            column.kind = <Kind><int>KINDS.index(kind)
            column.scale = scale
            column.optional = optional
            column.words = [word.encode() for word in words]
            plan.push_back(column)
        self._parser = new CRowParser(plan)
        self._texts = []

    def __dealloc__(self):
        del self._parser

    def set_fields(self, fields):
        """Set, for each field of a row, its column or `SKIP`."""
        self._parser.set_fields(fields)

    def set_keys(self, keys):
        """Set the key of each column."""
        cdef vector[string] names = [key.encode() for key in keys]
        self._parser.set_keys(names)

    def parse(self, const uint8_t[::1] data, bint last, bint pairs=False):
        """Parse the complete lines in `data`.

        Returns:
            Their size in bytes; an array of int64 with line, offset and length before the columns;
            and ``(line, offset, length, column, fault)`` of each invalid line.
        """
        cdef size_t used, n
        cdef const char* p = NULL
        if data.shape[0]:
            p = <const char*>&data[0]
        cdef string_view view = string_view(p, <size_t>data.shape[0])
        with nogil:
            used = (self._parser.parse_pairs(view, last) if pairs
                    else self._parser.parse_csv(view, last))
        n = self._parser.rows().size() // self._parser.width()
        rows = np.empty((n, self._parser.width()), np.int64)
        cdef int64_t[:, ::1] target = rows
        if n:
            memcpy(&target[0, 0], self._parser.rows().data(), self._parser.rows().size() * 8)
        bad = []
        cdef BadRow row
        for n in range(self._parser.bad().size()):
            row = self._parser.bad()[n]
            bad.append((row.line, row.offset, row.length, row.column, FAULTS[<int>row.fault]))
        return used, rows, bad

    @property
    def line(self):
        """The number of the last line."""
        return self._parser.line()

    @line.setter
    def line(self, uint64_t number):
        self._parser.set_line(number)

    @property
    def texts(self):
        """The texts that the numbers in text columns refer to, as bytes."""
        cdef size_t i
        for i in range(len(self._texts), self._parser.texts().size()):
            self._texts.append(PyBytes_FromStringAndSize(self._parser.texts()[i].data(),
                                                         self._parser.texts()[i].size()))
        return self._texts


cdef _copied(const vector[int64_t]& values):
    cdef int64_t[::1] target
    made = np.empty(values.size(), np.int64)
    if values.size():
        target = made
        memcpy(&target[0], values.data(), values.size() * 8)
    return made


cdef class L2Grouper:
    """Converts rows of levels of one instrument to payloads of book events; see l2_groups.hpp."""

    cdef CL2Grouper* _grouper

    def __cinit__(self, uint16_t venue_id, uint32_t market_id, uint8_t price_scale,
                  uint8_t size_scale):
        self._grouper = new CL2Grouper(venue_id, market_id, price_scale, size_scale)

    def __dealloc__(self):
        del self._grouper

    def add(self, const int64_t[:, ::1] rows):
        """Add rows of ingest_ns, exchange_ns, native_seq, snapshot, side, price, size, line."""
        if rows.shape[1] != LEVEL_ROW_FIELDS:
            raise InvalidMessage(
                f"a row of a level must have {LEVEL_ROW_FIELDS} values: columns={rows.shape[1]}")
        if rows.shape[0]:
            with nogil:
                self._grouper.add(<const LevelRow*>&rows[0, 0], <size_t>rows.shape[0])

    def finish(self):
        """Declare that no row follows."""
        self._grouper.finish()

    @property
    def open_line(self):
        """The line of the first row of the event that is not complete yet; 0 without one."""
        return self._grouper.open_line()

    def take(self):
        """Return times, payloads, first lines and last lines of the complete events."""
        cdef size_t i, start = 0, end, n = self._grouper.ends().size()
        cdef const char* data = tw_payloads(self._grouper)
        timestamps_ns = _copied(self._grouper.timestamps_ns())
        lines = _copied(self._grouper.lines())
        last_lines = _copied(self._grouper.last_lines())
        payloads = []
        for i in range(n):
            end = self._grouper.ends()[i]
            payloads.append(PyBytes_FromStringAndSize(data + start, end - start))
            start = end
        self._grouper.take()
        return timestamps_ns, payloads, lines, last_lines


cdef class ItchDecoder:
    """Converts ITCH 5.0 messages to events; see itch.hpp.

    Args:
        by_type: Derive the length of a message from its type, not from the two bytes before it.
    """

    cdef CItchDecoder* _decoder

    def __cinit__(self, bint by_type=False):
        self._decoder = new CItchDecoder(LENGTHS_TYPE if by_type else LENGTHS_PREFIX)

    def __dealloc__(self):
        del self._decoder

    def decode(self, const uint8_t[::1] data, bint last):
        """Decode the complete messages in `data`.

        Returns:
            Their size in bytes, an `ITCH_DTYPE` array, and ``(number, offset, length, fault)`` of
            each invalid message.
        """
        cdef size_t used
        cdef const uint8_t* p = NULL
        if data.shape[0]:
            p = &data[0]
        with nogil:
            used = tw_decode_itch(self._decoder, p, <size_t>data.shape[0], last)
        events = np.empty(self._decoder.events().size(), ITCH_DTYPE)
        cdef uint8_t[::1] target
        if len(events):
            target = events.view(np.uint8)
            tw_copy_events(self._decoder, &target[0])
        bad = []
        cdef ItchBad one
        cdef size_t i
        for i in range(self._decoder.bad().size()):
            one = self._decoder.bad()[i]
            bad.append((one.number, one.offset, one.length, ITCH_FAULTS[<int>one.fault]))
        return used, events, bad

    def stock(self, uint16_t locate):
        """Return the stock of a locate code; empty if it is unknown."""
        cdef string name = self._decoder.stock(locate)
        return name.decode("ascii")

    @property
    def counts(self):
        """Number of valid messages by type."""
        return {chr(kind): self._decoder.count(<char>kind) for kind in range(128)
                if self._decoder.count(<char>kind)}

    @property
    def messages(self):
        """Number of messages seen, including invalid ones."""
        return self._decoder.messages()

    @property
    def from_start(self):
        """Whether the first message was the start of messages."""
        return self._decoder.from_start()

    @property
    def out_of_order(self):
        """Of the last `decode`, the numbers of messages that are earlier than the one before."""
        cdef size_t i
        return [self._decoder.out_of_order()[i] for i in range(self._decoder.out_of_order().size())]

    @property
    def unknown_orders(self):
        """Number of messages about an unknown order."""
        return self._decoder.unknown_orders()
