# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The replay engine: single steps for Python, and long native runs."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM
from cython.operator cimport dereference as deref
from libcpp.string cimport string

from time import monotonic

from tapewire.book._native cimport Turn, wrap_book

from tapewire.book.gaps import kind_of
from tapewire.errors import InvalidOption

cdef extern from "tapewire/format/book_snapshot.hpp" namespace "tapewire::format":
    size_t kSnapshotHeaderBytes

SNAPSHOT_HEADER_BYTES = kSnapshotHeaderBytes

cdef extern from *:
    """
    #include "tapewire/replay/engine.hpp"
    #include "tapewire/replay/snapshot.hpp"
    // Cython cannot assign to scoped enums.
    static inline void tw_policies(tapewire::replay::EngineOptions& o, int on_gap, int unknown) {
        o.on_gap = static_cast<tapewire::book::GapPolicy>(on_gap);
        o.unknown = static_cast<tapewire::book::Unknown>(unknown);
    }
    static inline size_t tw_book_gaps(const tapewire::book::Book& b) { return b.gaps().size(); }
    static inline const tapewire::book::Gap& tw_book_gap(const tapewire::book::Book& b, size_t i) {
        return b.gaps()[i];
    }
    static inline std::string tw_cause(const tapewire::book::Gap& g) {
        return tapewire::book::name_of(g.cause);
    }
    static inline bool tw_is_record_gap(const tapewire::book::Gap& g) {
        return g.cause == tapewire::book::Distrust::record_gap;
    }
    static inline std::span<const std::byte> tw_span(const void* data, size_t size) {
        return {static_cast<const std::byte*>(data), size};
    }
    static inline tapewire::book::Options tw_options(int price_scale, int size_scale, int rules) {
        tapewire::book::Options options;
        options.price_scale = static_cast<uint8_t>(price_scale);
        options.size_scale = static_cast<uint8_t>(size_scale);
        options.rules = static_cast<tapewire::book::Rules>(rules);
        return options;
    }
    static inline std::shared_ptr<tapewire::book::Book> tw_load(
        const void* data, size_t size, tapewire::book::Options options, bool as_instrument,
        int on_gap, int unknown, tapewire::format::BookSnapshotHeader& header) {
        options.on_gap = static_cast<tapewire::book::GapPolicy>(on_gap);
        options.unknown = static_cast<tapewire::book::Unknown>(unknown);
        auto loaded =
            tapewire::replay::decode_snapshot(tw_span(data, size), options, as_instrument);
        header = loaded.header;
        return std::make_shared<tapewire::book::Book>(std::move(loaded.book));
    }
    static inline std::shared_ptr<tapewire::book::Book> tw_empty(
            tapewire::book::Options options, bool l3, int on_gap) {
        options.mode = l3 ? tapewire::format::BookMode::l3 : tapewire::format::BookMode::l2;
        options.on_gap = static_cast<tapewire::book::GapPolicy>(on_gap);
        return std::make_shared<tapewire::book::Book>(options);
    }
    static inline tapewire::replay::Market& tw_add(
        tapewire::replay::Engine& engine, uint16_t venue, uint32_t market, uint64_t symbol_hash,
        const tapewire::book::Options* options) {
        return engine.add(venue, market, symbol_hash,
                          options ? std::optional(*options) : std::nullopt);
    }
    static inline tapewire::format::BookSnapshotHeader tw_header(const void* data, size_t size,
                                                                 uint64_t file_bytes) {
        return tapewire::replay::decode_snapshot_header(tw_span(data, size), file_bytes);
    }
    static inline std::string tw_encode(const tapewire::book::Book& book, uint16_t venue,
                                        uint32_t market, uint64_t seq, int64_t time) {
        const auto bytes = tapewire::replay::encode_snapshot(book, {venue, market, seq, time});
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    """
    cppclass CBookGap "tapewire::book::Gap":
        uint64_t first
        uint64_t last
        uint64_t seq
        int64_t timestamp_ns
        cbool resynced

    cppclass CHeader "tapewire::format::BookSnapshotHeader":
        uint16_t book_mode
        uint32_t venue_id
        uint32_t market_id
        uint64_t seq_num
        uint64_t ingest_ts_ns_start
        uint64_t ingest_ts_ns_end
        uint64_t exchange_ts_ns_start
        uint64_t exchange_ts_ns_end
        uint64_t book_hash_low
        uint64_t book_hash_high
        uint64_t payload_len

    void tw_policies(EngineOptions&, int, int)
    size_t tw_book_gaps(const CBook&)
    const CBookGap& tw_book_gap(const CBook&, size_t)
    string tw_cause(const CBookGap&)
    bint tw_is_record_gap(const CBookGap&)
    cppclass COptions "tapewire::book::Options":
        pass

    COptions tw_options(int, int, int)
    shared_ptr[CBook] tw_empty(COptions, bint, int) except +raise_python_error
    shared_ptr[CBook] tw_load(const void*, size_t, COptions, bint, int, int,
                              CHeader&) except +raise_python_error
    CMarket& tw_add(CEngine&, uint16_t, uint32_t, uint64_t,
                    const COptions*) except +raise_python_error
    CHeader tw_header(const void*, size_t, uint64_t) except +raise_python_error
    string tw_encode(const CBook&, uint16_t, uint32_t, uint64_t, int64_t) except +raise_python_error

cdef tuple KINDS = ("book", "trade", "quote", "other", "gap")
cdef tuple APPLIED = ("changed", "unchanged", "buffered", "ignored")
cdef tuple CAUSES = ("missing", "damaged", "unreadable")
cdef tuple STOPS = ("end", "records", "bytes", "time", "roll", "gap", "slice")
cdef dict RULES = {None: 0, "szse": 1, "sse": 2, "continuous": 3}
cdef dict GAP_POLICIES = {"raise": 0, "quarantine": 1, "resync": 2}
cdef dict ACTIONS = {"raise": "raised", "quarantine": "quarantined", "resync": "untrusted"}
cdef dict UNKNOWN_POLICIES = {"ignore": 0, "raise": 1, "distrust": 2}

# So many records are skipped without checking for Ctrl-C.
cdef uint64_t PASSED_AT_ONCE = 65536
cdef int64_t SLICE_NS = 100_000_000
cdef object NO_TRADES = None


cdef COptions options_of(instrument) except *:
    return tw_options(instrument.price_scale, instrument.size_scale, RULES[instrument.rules])


cdef object no_trades():
    global NO_TRADES
    if NO_TRADES is None:
        import numpy
        from tapewire.protocol.market import TradeTick
        NO_TRADES = numpy.empty(0, TradeTick.dtype)
        NO_TRADES.flags.writeable = False
    return NO_TRADES


@cython.final
@cython.freelist(64)
cdef class Step:
    """One record of a replay, and its effect.

    A step, its record and its trades remain valid. `book` is the only book of the instrument and
    continues to change: copy what you need later.

    Attributes:
        kind: "book", "trade", "quote", "other", or "gap" where records are missing.
        timestamp_ns: Time of the record.
        clock_ns: Clock of the replay: the highest time so far.
        seq: Sequence number of the record; of a gap, that of the last record before it.
        venue: Venue of the instrument, or None.
        symbol: Symbol of the instrument, or None. One that is not in an `instruments.json` is named
            by its ids: "#7".
        book: Book of the instrument, or None before its first event. Always the same object.
        applied: For "book": "changed", "unchanged", "buffered" or "ignored"; else None.
        record: The `Record`; None for a gap.
        gap: For "gap": ``(first, last, cause)``; else None.
    """

    cdef readonly str kind
    cdef readonly int64_t timestamp_ns
    cdef readonly int64_t clock_ns
    cdef readonly uint64_t seq
    cdef readonly object venue
    cdef readonly object symbol
    cdef readonly object book
    cdef readonly object applied
    cdef readonly Record record
    cdef readonly object gap

    @property
    def trades(self):
        """The trade as a structured array of one row, without a copy; else an empty one."""
        if self.kind != "trade":
            return no_trades()
        from tapewire.protocol.market import TradeTick
        return self.record.view(TradeTick.dtype)

    @property
    def source(self):
        """Name of the log if the replay has several; else None."""
        return None if self.record is None else self.record.source

    def __repr__(self):
        what = self.kind if self.symbol is None else f"{self.kind} {self.venue}:{self.symbol}"
        more = f" {self.gap}" if self.gap is not None else ""
        return f"<Step {what} seq={self.seq} timestamp_ns={self.timestamp_ns}{more}>"


cdef class Engine:
    """Drives a reader and maintains the books, for `Replay` and `Snapshotter`.

    While it is in use, the reader must not be moved or closed by other code.
    """

    def __init__(self, CursorReader reader not None, name_of, *, on_gap="resync",
                 unknown="distrust", only_added=False, skip_damaged=False, show_from_ns=None,
                 show_from_seq=None, end_ns=None, end_seq=None):
        cdef EngineOptions options
        if self._engine is not NULL:
            raise RuntimeError("already initialized")
        if on_gap not in GAP_POLICIES:
            raise InvalidOption(
                f'on_gap must be "raise", "quarantine" or "resync": on_gap={on_gap!r}')
        if unknown not in UNKNOWN_POLICIES:
            raise InvalidOption(
                f'unknown must be "ignore", "raise" or "distrust": unknown={unknown!r}')
        tw_policies(options, GAP_POLICIES[on_gap], UNKNOWN_POLICIES[unknown])
        options.only_added = only_added
        options.skip_damaged = skip_damaged
        if show_from_ns is not None:
            options.show_from_ns = show_from_ns
        if show_from_seq is not None:
            options.show_from_seq = show_from_seq
        if end_ns is not None:
            options.end_ns = end_ns
        if end_seq is not None:
            options.ends_at_seq = True
            options.end_seq = end_seq
        reader._check()
        self._reader = reader
        self._turn = Turn.__new__(Turn)
        self._name_of = name_of
        self._on_gap = on_gap
        self._books = []
        self._venues = []
        self._symbols = []
        self._engine = new CEngine(deref(reader._cursor), options)

    def __dealloc__(self):
        del self._engine

    # Raises for a reader that is closed or inside a call of another thread.
    cdef int _check(self) except -1:
        if self._reader._busy or self._reader._cursor is NULL:
            self._reader._check()
        return self._check_idle()

    # Books and gaps must not be read while another thread changes them.
    cdef int _check_idle(self) except -1:
        if self._turn.taken:
            self._turn.take()  # raises
        return 0

    # Around every call that releases the GIL: no other thread may use the books meanwhile.
    cdef int _enter_call(self) except -1:
        self._turn.take()
        try:
            self._reader._enter_call()
        except:
            self._turn.taken = False
            raise
        return 0

    cdef int _leave_call(self) except -1:
        self._turn.taken = False
        return self._reader._leave_call()

    cdef int _know(self, size_t index) except -1:
        cdef CMarket* market
        while <size_t> len(self._books) <= index:
            market = self._engine.markets()[len(self._books)].get()
            venue, symbol = self._name_of(market.venue_id, market.market_id)
            self._venues.append(venue)
            self._symbols.append(symbol)
            self._books.append(None)
        return 0

    cdef object _book_of(self, CMarket* market):
        if <size_t> len(self._books) <= market.index:
            self._know(market.index)
        book = <object> PyList_GET_ITEM(self._books, market.index)
        if book is None and market.book.get() is not NULL:
            book = wrap_book(market.book, self._turn)
            self._books[market.index] = book
        return book

    cdef object _step(self, CStep& found):
        cdef Step step = Step.__new__(Step)
        step.kind = <str> KINDS[<int> found.kind]
        step.timestamp_ns = found.record.timestamp_ns
        step.clock_ns = found.time_ns
        step.seq = found.record.seq
        if found.market is not NULL:
            step.book = self._book_of(found.market)
            step.venue = <object> PyList_GET_ITEM(self._venues, found.market.index)
            step.symbol = <object> PyList_GET_ITEM(self._symbols, found.market.index)
        if found.kind == Kind.gap:
            step.gap = (found.gap.first, found.gap.last, CAUSES[<int> found.gap.cause])
        else:
            step.record = self._reader._wrap(&found.record)
            if found.kind == Kind.book:
                step.applied = APPLIED[<int> found.applied]
        return step

    def __iter__(self):
        return self

    def __next__(self):
        cdef CStep found
        cdef Found what
        self._check()
        what = self._engine.advance(found, 256)  # a few, before the GIL is worth releasing
        while what == Found.pause:
            what = self._pass_over(found)
        if what == Found.end:
            raise StopIteration
        return self._step(found)

    cdef Found _pass_over(self, CStep& found) except *:
        cdef Found what
        PyErr_CheckSignals()
        self._enter_call()
        try:
            with nogil:
                what = self._engine.advance(found, PASSED_AT_ONCE)
        finally:
            self._leave_call()
        return what

    def next(self, follow=False):
        """Return the next step, or None at the end; `follow` as in the `follow` of the reader."""
        if not follow:
            return next(self, None)
        self._check()
        self._reader._following(True)
        try:
            return next(self, None)
        finally:
            self._reader._following(False)

    def wait(self, timeout=None):
        """Wait as the reader does."""
        return self._reader.wait(timeout)

    def run(self, *, records=None, bytes=None, until_ns=None, at_roll=False, at_gap=False,
            seconds=None):
        """Apply records without the GIL and without returning steps; return why it stopped.

        The reason is "end", "records", "bytes", "time", "roll", "gap", or "slice" after `seconds`
        of wall clock. Ctrl-C ends the run.
        """
        cdef Limits limits
        cdef Stop why
        cdef uint64_t start = self._engine.records()
        cdef uint64_t start_bytes = self._engine.bytes()
        cdef uint64_t start_rolls = self._engine.rolls()
        if until_ns is not None:
            limits.until_ns = until_ns
        limits.at_roll = at_roll
        limits.at_gap = at_gap
        deadline = None
        if seconds is not None:
            if not seconds > 0:
                raise InvalidOption(f"seconds must be above 0: seconds={seconds!r}")
            deadline = monotonic() + seconds
        while True:
            limits.slice_ns = SLICE_NS
            if deadline is not None:
                limits.slice_ns = max(
                    1, <int64_t> min(<double> SLICE_NS, (deadline - monotonic()) * 1e9))
            if records is not None:
                limits.records = records - (self._engine.records() - start)
            if bytes is not None:
                limits.bytes = bytes - (self._engine.bytes() - start_bytes)
            self._enter_call()
            try:
                with nogil:
                    why = self._engine.run(limits)
            finally:
                self._leave_call()
            PyErr_CheckSignals()
            if why != Stop.slice or (deadline is not None and monotonic() >= deadline):
                return STOPS[<int> why]

    def add(self, instrument):
        """Register an instrument; return its index, for `warm`."""
        cdef COptions options = options_of(instrument)
        cdef CMarket* market = &tw_add(deref(self._engine), instrument.venue_id,
                                       instrument.market_id, instrument.symbol_hash, &options)
        self._know(market.index)
        return market.index

    def warm(self, Snapshot snapshot not None, source):
        """Start with the book of a snapshot, which was taken of the log `source`."""
        header = snapshot.header
        cdef CMarket* market = &tw_add(deref(self._engine), header["venue_id"],
                                       header["market_id"], 0, NULL)
        self._engine.warm(deref(market), snapshot.loaded, source, header["seq"],
                          header["ingest_end_ns"])

    def lost_before(self, source, first, last):
        """Report that records are missing before the start of the log `source`."""
        self._engine.lost_before(source, first, last)

    @property
    def records(self):
        """Records returned or skipped so far."""
        return self._engine.records()

    @property
    def events(self):
        """Book events applied so far."""
        return self._engine.events()

    @property
    def bytes(self):
        """Bytes of log read so far, including headers."""
        return self._engine.bytes()

    @property
    def rolls(self):
        """How often a record was in another segment than the one before."""
        return self._engine.rolls()

    @property
    def last_seq(self):
        """Sequence number of the last record, in its own log; None before the first."""
        cdef optional[uint64_t] seq = self._engine.last_seq()
        return seq.value() if seq.has_value() else None

    @property
    def last_timestamp_ns(self):
        """Time of the last record."""
        return self._engine.last_timestamp_ns()

    @property
    def clock_ns(self):
        """Clock of the replay: the highest time so far; None before the first record."""
        return self._engine.clock_ns() if self._engine.records() else None

    @property
    def gap_changes(self):
        """A counter that rises with each gap and each resync."""
        return self._engine.gap_changes()

    @property
    def finished(self):
        """Whether the end time or end sequence number was reached: no more steps follow."""
        return bool(self._engine.finished())

    def markets(self):
        """Return all instruments with a book: ``(venue_id, market_id, venue, symbol, book)``."""
        cdef CMarket* market
        cdef size_t i
        self._check_idle()
        found = []
        for i in range(self._engine.markets().size()):
            market = self._engine.markets()[i].get()
            book = self._book_of(market)
            if book is not None:
                found.append((market.venue_id, market.market_id, self._venues[i],
                              self._symbols[i], book))
        return found

    def gaps(self):
        """Return the gaps: the fields of a `tapewire.book.gaps.Gap`, and the index of the log.

        ``(kind, venue, symbol, first, last, seq, timestamp_ns, cause, action, source)``; missing
        records of a log are one entry, which is resynced once all its books are.
        """
        cdef CMarket* market
        cdef const CTapeGap* tape
        cdef const CBookGap* gap
        cdef size_t i, k
        self._check_idle()
        if self._engine.markets().size() != 0:
            self._know(self._engine.markets().size() - 1)
        found = []
        for i in range(self._engine.tape_gaps().size()):
            tape = &self._engine.tape_gaps()[i]
            venue = symbol = ""
            if tape.markets.size() == 1 and tape.cause == TapeCause.unreadable:
                venue = self._venues[tape.markets[0].index]
                symbol = self._symbols[tape.markets[0].index]
            good = all(
                [self._is_resynced(tape.markets[k], tape) for k in range(tape.markets.size())])
            cause = CAUSES[<int> tape.cause] if tape.counted else "damaged, how many is not known"
            found.append(("parse" if tape.cause == TapeCause.unreadable else "record", venue,
                          symbol, tape.first, tape.last, tape.seq, tape.timestamp_ns, cause,
                          self._action(good) if tape.markets.size() else "noted", tape.source))
        for i in range(self._engine.markets().size()):
            market = self._engine.markets()[i].get()
            if market.book.get() is NULL:
                continue
            for k in range(tw_book_gaps(deref(market.book))):
                gap = &tw_book_gap(deref(market.book), k)
                if not tw_is_record_gap(deref(gap)):
                    cause = tw_cause(deref(gap)).decode()
                    found.append((kind_of(cause), self._venues[i], self._symbols[i], gap.first,
                                  gap.last, gap.seq, gap.timestamp_ns, cause.replace("_", " "),
                                  self._action(gap.resynced), 0))
        return found

    cdef str _action(self, bint resynced):
        return "resynced" if resynced else ACTIONS[self._on_gap]

    cdef bint _is_resynced(self, CMarket* market, const CTapeGap* tape):
        cdef size_t k
        cdef const CBookGap* gap
        for k in range(tw_book_gaps(deref(market.book))):
            gap = &tw_book_gap(deref(market.book), k)
            if tw_is_record_gap(deref(gap)) and gap.first == tape.first and gap.last == tape.last:
                return gap.resynced
        return market.book.get().trusted()

    def hash(self):
        """Return the XXH3-128 hash over all books, as text."""
        cdef Hash128 hash
        self._turn.take()  # does not need the reader, which may be closed
        try:
            with nogil:
                hash = self._engine.hash()
        finally:
            self._turn.taken = False
        return f"{hash.high:016x}{hash.low:016x}"

    # ---- for the snapshotter ---------------------------------------------------------------------

    def to_save(self, changed_only):
        """Return the indexes of trusted books: all, or those changed since `saved`."""
        cdef size_t i
        cdef CMarket* market
        found = []
        for i in range(self._engine.markets().size()):
            market = self._engine.markets()[i].get()
            if market.book.get() is not NULL and market.book.get().trusted():
                if market.changed or not changed_only:
                    found.append(i)
        return found

    def encode(self, size_t index):
        """Return a snapshot of an instrument's book: ``(venue_id, market_id, bytes)``."""
        cdef CMarket* market = self._engine.markets().at(index).get()
        cdef optional[uint64_t] seq = self._engine.last_seq()
        text = tw_encode(deref(market.book), market.venue_id, market.market_id, seq.value(),
                         self._engine.last_timestamp_ns())
        return market.venue_id, market.market_id, <bytes> text

    def saved(self, size_t index):
        """Note that the snapshot of the current book is on disk."""
        self._engine.saved(deref(self._engine.markets().at(index).get()))

    def rebuild_from(self):
        """The record from which the books that cannot be saved now can be rebuilt; or None."""
        cdef size_t i
        cdef CMarket* market
        lowest = None
        for i in range(self._engine.markets().size()):
            market = self._engine.markets()[i].get()
            if market.book.get() is not NULL and not market.book.get().trusted():
                if lowest is None or market.rebuild_from < lowest:
                    lowest = market.rebuild_from
        return lowest

    def __repr__(self):
        return f"<Engine records={self.records} events={self.events} last_seq={self.last_seq}>"


def empty_book(instrument, on_gap="resync"):
    """Return an empty book of the instrument."""
    cdef COptions options = options_of(instrument)
    return wrap_book(tw_empty(options, instrument.book_mode == "l3", GAP_POLICIES[on_gap]))


cdef class Snapshot:
    """A validated book snapshot: its header and its book."""

    cdef shared_ptr[CBook] loaded
    cdef readonly dict header

    @property
    def book(self):
        """The book. Each access may return another object, over the same native book."""
        return wrap_book(self.loaded)


cdef dict header_fields(const CHeader& header):
    return {
        "book_mode": "l3" if header.book_mode else "l2",
        "venue_id": header.venue_id,
        "market_id": header.market_id,
        "seq": header.seq_num,
        "ingest_start_ns": <int64_t> header.ingest_ts_ns_start,
        "ingest_end_ns": <int64_t> header.ingest_ts_ns_end,
        "exchange_start_ns": <int64_t> header.exchange_ts_ns_start,
        "exchange_end_ns": <int64_t> header.exchange_ts_ns_end,
        "book_hash": f"{header.book_hash_high:016x}{header.book_hash_low:016x}",
        "payload_bytes": header.payload_len,
    }


def decode_header(const unsigned char[::1] head not None, uint64_t file_bytes):
    """Return the header of a snapshot file of `file_bytes` bytes as a dict."""
    return header_fields(tw_header(&head[0] if head.shape[0] else NULL, head.shape[0], file_bytes))


def decode_snapshot(const unsigned char[::1] file not None, instrument=None, *, on_gap="resync",
                    unknown="distrust"):
    """Decode the bytes of a snapshot file; scales and rules must match `instrument`, if passed."""
    cdef COptions options
    cdef CHeader header
    cdef Snapshot snapshot = Snapshot.__new__(Snapshot)
    if instrument is not None:
        options = options_of(instrument)
    if on_gap not in GAP_POLICIES or unknown not in UNKNOWN_POLICIES:
        raise InvalidOption(f"invalid policy: on_gap={on_gap!r}, unknown={unknown!r}")
    snapshot.loaded = tw_load(&file[0] if file.shape[0] else NULL, file.shape[0], options,
                              instrument is not None, GAP_POLICIES[on_gap],
                              UNKNOWN_POLICIES[unknown], header)
    snapshot.header = header_fields(header)
    return snapshot
