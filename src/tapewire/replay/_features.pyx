# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The loop that computes rows of features and book levels, over a replay engine."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cython.operator cimport dereference as deref
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.vector cimport vector

from tapewire._native cimport byte, raise_python_error
from tapewire.replay._native cimport CEngine, CMarket, Engine

from collections import namedtuple

cdef extern from "tapewire/replay/feature_names.hpp" namespace "tapewire::replay":
    int64_t c_parse_span "tapewire::replay::parse_span"(const string&) except +raise_python_error

cdef extern from "tapewire/replay/level_rows.hpp" namespace "tapewire::replay":
    cppclass LevelsWanted:
        uint32_t levels
        cbool orders

cdef extern from "tapewire/replay/features.hpp" namespace "tapewire::replay":
    cppclass FeaturePlan:
        vector[string] names
        LevelsWanted levels
        int64_t look_back_ns

    cppclass Print:
        int64_t time_ns
        int64_t price
        int64_t size
        int64_t sign

    cppclass FeatureSet:
        size_t trade_count(size_t)
        const Print& trade(size_t, size_t)
        uint8_t price_scale()
        uint8_t size_scale()

cdef extern from "tapewire/arrow.hpp":
    cdef struct ArrowSchema:
        void (*release)(ArrowSchema*) noexcept nogil
    cdef struct ArrowArray:
        void (*release)(ArrowArray*) noexcept nogil

cdef extern from "<span>" namespace "std":
    cppclass CSpan "std::span"[T]:
        T& back()

cdef extern from "tapewire/replay/feature_rows.hpp" namespace "tapewire::replay":
    cppclass CRows "tapewire::replay::FeatureRows":
        CRows(size_t, const LevelsWanted&)
        CSpan[const int64_t] time_ns()
        CSpan[const double] values(size_t)
        CSpan[const uint8_t] valid(size_t)
        size_t size()

    cppclass MarketNames:
        vector[string] symbols
        cbool with_venues
        vector[string] venues

    void export_rows_schema(const vector[string]&, const LevelsWanted&, cbool,
                            ArrowSchema*) except +
    void export_rows(shared_ptr[const CRows], const MarketNames&, ArrowArray*) except +

cdef extern from "tapewire/replay/feature_loop.hpp" namespace "tapewire::replay":
    cppclass FeatureSlice:
        int64_t start_ns
        int64_t from_ns
        int64_t to_ns
        uint64_t from_seq
        int64_t first_ns
        cbool for_all_added

    cppclass CPosition "tapewire::replay::FeatureLoop::Position":
        string source
        optional[uint64_t] last_seq

    cdef enum class LoopStop "tapewire::replay::FeatureLoop::Stop"(uint8_t):
        rows
        pause
        end
        done

    cppclass CLoop "tapewire::replay::FeatureLoop":
        CLoop(CEngine&, shared_ptr[const FeaturePlan],
              const FeatureSlice&) except +raise_python_error
        LoopStop run(CRows&, size_t, uint64_t) except +raise_python_error nogil
        const CMarket* row_market()
        const FeatureSet* row_features()
        void save(const vector[CPosition]&, vector[byte]&) except +raise_python_error

cdef extern from *:
    """
    #include "tapewire/replay/feature_loop.hpp"
    #include "tapewire/replay/feature_names.hpp"
    static inline std::span<const std::byte> tw_state(const void* data, size_t size) {
        return {static_cast<const std::byte*>(data), size};
    }
    static inline void tw_load_state(tapewire::replay::FeatureLoop& loop, const void* data,
                                     size_t size, const std::vector<std::string>& sources) {
        loop.load(tw_state(data, size), sources);
    }
    static inline std::vector<tapewire::replay::FeatureLoop::Position> tw_positions(
            const void* data, size_t size) {
        return tapewire::replay::FeatureLoop::positions_in(tw_state(data, size));
    }
    static inline std::shared_ptr<const tapewire::replay::FeaturePlan> tw_plan(
        const std::vector<std::string>& names, const std::string& sample,
        const std::vector<int64_t>& kept, uint32_t levels, bool orders) {
        return std::make_shared<const tapewire::replay::FeaturePlan>(
            names, sample, kept, tapewire::replay::LevelsWanted{levels, orders});
    }
    static inline size_t tw_info_count() { return tapewire::replay::feature_infos().size(); }
    // name, meaning, formula, unit, look_back, missing; the name with what it takes.
    static inline std::string tw_info(size_t i, int field) {
        const auto& info = tapewire::replay::feature_infos()[i];
        using tapewire::replay::Takes;
        const std::string takes = info.takes == Takes::levels ? "N"
                                  : info.takes == Takes::span ? "_SPAN" : "";
        switch (field) {
            case 0: return std::string(info.name) + takes;
            case 1: return std::string(info.meaning);
            case 2: return std::string(info.formula);
            case 3: return std::string(info.unit);
            case 4: return std::string(info.look_back);
            default: return std::string(info.missing);
        }
    }
    static inline tapewire::replay::FeatureLoop::Position tw_position(
            const std::string& source, bool any, uint64_t seq) {
        return {source, any ? std::optional<uint64_t>(seq) : std::nullopt};
    }
    """
    void tw_load_state(CLoop&, const void*, size_t,
                       const vector[string]&) except +raise_python_error
    vector[CPosition] tw_positions(const void*, size_t) except +raise_python_error
    shared_ptr[const FeaturePlan] tw_plan(const vector[string]&, const string&,
                                          const vector[int64_t]&, uint32_t,
                                          cbool) except +raise_python_error
    size_t tw_info_count()
    string tw_info(size_t, int)
    CPosition tw_position(const string&, bint, uint64_t)

FeatureInfo = namedtuple("FeatureInfo", "name meaning formula unit look_back missing")
FeatureInfo.__doc__ = """A feature; in `name`, N is a number of levels and SPAN a time span."""

cdef tuple STOPS = ("rows", "pause", "end", "done")
# Records between two checks for Ctrl-C: a few milliseconds.
cdef uint64_t RECORDS_AT_ONCE = 65536


def describe_features():
    """Return all native features: name, meaning, formula, unit, look-back, and when it is null.

    Example:
        >>> from tapewire import replay
        >>> [info.formula for info in replay.describe_features() if info.name == "mid"]
        ['(Pb + Pa) / 2']
    """
    return [FeatureInfo(*[tw_info(i, field).decode() for field in range(6)])
            for i in range(tw_info_count())]


def parse_span(str text not None):
    """Convert a span to nanoseconds: an integer of us, ms, s, m, h or d, at most a day.

    Example:
        >>> parse_span("100ms")
        100000000
    """
    return c_parse_span(text.encode())


cdef void _free_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:  # a consumer that moved it has cleared this
        schema.release(schema)
    PyMem_Free(schema)


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    PyMem_Free(array)


cdef class Plan:
    """A validated selection of features, book levels and the sampling."""

    cdef shared_ptr[const FeaturePlan] plan

    def __init__(self, names, str sample not None, kept_trades_ns=(), uint32_t levels=0,
                 bint orders=False):
        cdef vector[string] texts = [name.encode() for name in names]
        cdef vector[int64_t] kept = kept_trades_ns
        self.plan = tw_plan(texts, sample.encode(), kept, levels, orders)

    @property
    def look_back_ns(self):
        """The longest look-back: how far before its time records can affect a row."""
        return deref(self.plan).look_back_ns


cdef class Rows:
    """Rows as columns, with the Arrow PyCapsule interface."""

    cdef shared_ptr[CRows] rows
    cdef shared_ptr[const FeaturePlan] plan
    cdef MarketNames names

    def __len__(self):
        return deref(self.rows).size()

    def __arrow_c_schema__(self):
        cdef ArrowSchema* schema = <ArrowSchema*> PyMem_Malloc(sizeof(ArrowSchema))
        if schema is NULL:
            raise MemoryError
        schema.release = NULL
        capsule = PyCapsule_New(schema, "arrow_schema", _free_schema)
        export_rows_schema(deref(self.plan).names, deref(self.plan).levels, self.names.with_venues,
                           schema)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray* array = <ArrowArray*> PyMem_Malloc(sizeof(ArrowArray))
        if array is NULL:
            raise MemoryError
        array.release = NULL
        capsule = PyCapsule_New(array, "arrow_array", _free_array)
        export_rows(<shared_ptr[const CRows]> self.rows, self.names, array)
        return self.__arrow_c_schema__(), capsule


TRADE_FIELDS = [("timestamp_ns", "<i8"), ("price", "<i8"), ("size", "<i8"), ("sign", "<i8")]


@cython.final
cdef class Row:
    """The argument of a feature written in Python; valid during the call.

    Attributes:
        timestamp_ns: Time of the row.
        venue: Venue of the instrument.
        symbol: Symbol of the instrument.
        book: Book of the instrument as of the row, or None before its first event. It continues to
            change.
    """

    cdef readonly int64_t timestamp_ns
    cdef readonly object venue
    cdef readonly object symbol
    cdef readonly object book
    cdef Rows _rows
    cdef const FeatureSet* _features
    cdef Py_ssize_t _kept  # the index of the span of trades for this function; -1: none
    cdef dict _places
    cdef object _owner  # owns the target of the pointer

    def __getitem__(self, str name not None):
        """Return the value of a native feature in this row; None if it is null."""
        place = self._places.get(name)
        if place is None:
            raise KeyError(f"no such feature in the row: name={name!r}; "
                           "request it together with the function")
        cdef size_t i = place
        if not deref(self._rows.rows).valid(i).back():
            return None
        return deref(self._rows.rows).values(i).back()

    @property
    def price_scale(self):
        """Decimals of the prices of `trades`."""
        return self._features.price_scale()

    @property
    def size_scale(self):
        """Decimals of the sizes of `trades`."""
        return self._features.size_scale()

    @property
    def trades(self):
        """Trades of the look-back, oldest first: timestamp_ns, price, size, sign (all scaled)."""
        import numpy
        cdef const Print* print_
        cdef size_t i
        cdef size_t n = self._features.trade_count(self._kept) if self._kept >= 0 else 0
        cdef object array = numpy.empty(n, TRADE_FIELDS)
        cdef int64_t[:, ::1] cells = array.view("<i8").reshape(n, 4)
        for i in range(n):
            print_ = &self._features.trade(self._kept, i)
            cells[i, 0] = print_.time_ns
            cells[i, 1] = print_.price
            cells[i, 2] = print_.size
            cells[i, 3] = print_.sign
        return array

    def __repr__(self):
        return f"<Row {self.venue}:{self.symbol} timestamp_ns={self.timestamp_ns}>"


cdef class Loop:
    """Computes rows from an engine, which only it may move."""

    cdef CLoop* _loop
    cdef Engine _engine
    cdef shared_ptr[const FeaturePlan] _plan
    cdef dict _places

    def __init__(self, Engine engine not None, Plan plan not None, *, start_ns=None, from_ns=None,
                 to_ns=None, from_seq=0, first_ns=0, for_all_added=False):
        cdef FeatureSlice slice
        if self._loop is not NULL:
            raise RuntimeError("already initialized")
        if start_ns is not None:
            slice.start_ns = start_ns
        if from_ns is not None:
            slice.from_ns = from_ns
        if to_ns is not None:
            slice.to_ns = to_ns
        slice.from_seq = from_seq
        slice.first_ns = first_ns
        slice.for_all_added = for_all_added
        self._engine = engine
        self._plan = plan.plan
        self._places = {deref(self._plan).names[i].decode(): i
                        for i in range(deref(self._plan).names.size())}
        self._loop = new CLoop(deref(engine._engine), self._plan, slice)

    def __dealloc__(self):
        del self._loop

    def rows(self):
        """Return an empty `Rows` for `run` to fill."""
        cdef Rows rows = Rows.__new__(Rows)
        rows.plan = self._plan
        rows.rows = make_shared[CRows](deref(self._plan).names.size(), deref(self._plan).levels)
        return rows

    def run(self, Rows rows not None, size_t max_rows, bint follow=False):
        """Compute rows until there are so many; return why it stopped.

        The reason is "rows", "end" (no more records now) or "done" (the end of the slice). Runs
        without the GIL; Ctrl-C ends it. `follow` as in the `follow` of the reader.
        """
        cdef LoopStop stop = LoopStop.pause
        cdef CRows* into = rows.rows.get()
        self._engine._check()
        if follow:
            self._engine._reader._following(True)
        try:
            while stop == LoopStop.pause:
                PyErr_CheckSignals()
                self._engine._enter_call()
                try:
                    with nogil:
                        stop = self._loop.run(deref(into), max_rows, RECORDS_AT_ONCE)
                finally:
                    self._engine._leave_call()
        finally:
            if follow:
                self._engine._reader._following(False)
        return STOPS[<int> stop]

    def finish(self, Rows rows not None, bint venues=False):
        """Attach the names of the instruments, for Arrow; with or without a venue column."""
        cdef size_t n = self._engine._engine.markets().size()
        if n:
            self._engine._know(n - 1)
        rows.names.symbols = [symbol.encode() for symbol in self._engine._symbols[:n]]
        rows.names.with_venues = venues
        if venues:
            rows.names.venues = [venue.encode() for venue in self._engine._venues[:n]]

    def row(self, Rows rows not None, Py_ssize_t kept):
        """Return the last row, for a function; `kept` is the index of its span of trades, or -1."""
        cdef Row row = Row.__new__(Row)
        cdef CMarket* market = <CMarket*> self._loop.row_market()
        row.timestamp_ns = deref(rows.rows).time_ns().back()
        row.book = self._engine._book_of(market)
        row.venue = self._engine._venues[market.index]
        row.symbol = self._engine._symbols[market.index]
        row._rows = rows
        row._features = self._loop.row_features()
        row._kept = kept
        row._places = self._places
        row._owner = self
        return row

    def save(self, positions):
        """Return the state as bytes; `positions` maps sources to last sequence numbers or None."""
        cdef vector[CPosition] vec
        cdef vector[byte] out
        self._engine._check_idle()
        for source, seq in positions.items():
            vec.push_back(tw_position(source.encode(), seq is not None, seq or 0))
        self._loop.save(vec, out)
        return (<const char*> out.data())[:out.size()]

    def load(self, const unsigned char[::1] state not None, sources):
        """Restore a state before the first `run`; `sources` are the names of the logs, in order."""
        cdef vector[string] names = [name.encode() for name in sources]
        tw_load_state(deref(self._loop), &state[0] if state.shape[0] else NULL, state.shape[0],
                      names)


def positions_in(const unsigned char[::1] state not None):
    """Return the last sequence number (or None) of each source when the state was saved.

    Raises:
        CorruptMetadata: The bytes are not a state, or damaged.
        UnsupportedVersion: Another release wrote the state.
    """
    cdef vector[CPosition] positions = tw_positions(
        &state[0] if state.shape[0] else NULL, state.shape[0])
    return {
        position.source.decode(errors="replace"):
            position.last_seq.value() if position.last_seq.has_value() else None
        for position in positions
    }
