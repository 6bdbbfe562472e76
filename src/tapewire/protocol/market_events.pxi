# Decoding of book events; part of _native.pyx.

cdef extern from *:
    """
    #include "tapewire/market/event.hpp"
    static inline tapewire::market::BookEvent tw_decode_bytes(const void* data, size_t size) {
        return tapewire::market::decode_book_payload({static_cast<const std::byte*>(data), size});
    }
    """
    CBookEvent tw_decode_bytes(const void*, size_t) except +raise_python_error

cdef extern from "tapewire/market/columns.hpp" namespace "tapewire::market":
    cppclass CLevelRow "tapewire::market::LevelRow":
        pass

    cppclass BookCounts:
        size_t events
        size_t levels

    BookCounts count_book_events(const BatchColumns&, size_t,
                                 size_t) except +raise_python_error nogil
    void copy_headers(const BatchColumns&, size_t, size_t,
                      BookEventHeader*) except +raise_python_error nogil
    void copy_levels(const BatchColumns&, size_t, size_t, CLevelRow*,
                     size_t) except +raise_python_error nogil

L3Order = namedtuple("L3Order", "event_type side ord_type exec_type price_scale size_scale flags "
                                "order_id bid_order_id ask_order_id price qty amt")
LossRange = namedtuple("LossRange", "cause first last")
LossRange.__doc__ = """A loss event: a `LossCause`, and the feed's missing sequence numbers."""
L3Order.__doc__ = """An event of one order: the body of a book event of mode `BookMode.L3`."""

cdef tuple _EVENT_NAMES = ("?", "snapshot", "diff", "reset", "heartbeat", "loss")
cdef tuple _ORDER_NAMES = ("?", "add", "cancel", "modify", "trade", "reset", "heartbeat")


# From numpy, which is imported when the levels of an event are first accessed.
cdef object _ndarray = None
cdef object _level_dtype = None
cdef object _no_levels = None


cdef int _load_numpy() except -1:
    global _ndarray, _level_dtype, _no_levels
    import numpy
    _ndarray = numpy.ndarray
    _level_dtype = struct_dtype("Level")
    none = numpy.empty(0, _level_dtype)
    none.flags.writeable = False
    _no_levels = none
    return 0


cdef BookEvent book_event_of(object source):
    """Decode and check the event in a record or in bytes."""
    cdef BookEvent made
    cdef Record record
    cdef RecordView view
    if type(source) is BookEvent:
        return <BookEvent> source
    made = BookEvent.__new__(BookEvent)
    if type(source) is Record:
        record = <Record> source
        view.payload = record._data
        view.payload_len = <uint32_t> record._size
        view.type_id = record.type_id
        view.seq = record.seq
        view.timestamp_ns = record.timestamp_ns
        made.event = decode_book_event(view)
        made.event.head.seq = record.seq  # regardless of what the writer stored
        made._source = source
        return made
    # A copy: a writable buffer may change.
    made._source = source if type(source) is bytes else bytes(memoryview(source))
    made.event = tw_decode_bytes(PyBytes_AS_STRING(made._source), PyBytes_GET_SIZE(made._source))
    return made


cdef class BookEvent:
    """One event of an order book: a change, snapshot, reset, heartbeat, loss, or order event.

    `record.decode()` returns it for records of type 0x1000. Every length, count, scale and kind has
    been checked. Prices and sizes are integers: ``price / 10 ** price_scale``.

    Example:
        >>> from tapewire.protocol import market
        >>> from tapewire.protocol.instruments import Instrument
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> payload = market.l2_diff(btc, 1_000, bids=[(9_999_950, 1_250)], asks=[],
        ...                          first=7, last=9, prev=6)
        >>> event = market.BookEvent.decode(payload)
        >>> event.update_last, event.bids["price"].tolist(), len(event.asks)
        (9, [9999950], 0)
        >>> event
        <BookEvent diff of market 0xD56930DA, 7 … 9 after 6: 1 bid, 0 asks>
    """

    def __init__(self):
        raise TypeError("use BookEvent.decode(record or bytes)")

    @staticmethod
    def decode(source):
        """Decode the event in a record, or in bytes.

        Raises:
            CorruptRecord: A field is invalid; the message names it.
            UnsupportedVersion: Another release wrote it.
        """
        return book_event_of(source)

    @property
    def schema_version(self):
        """Version of the protocol that it was written with."""
        return self.event.head.schema_version

    @property
    def venue_id(self):
        """Id of the venue; `instruments.json` has its name."""
        return self.event.head.venue_id

    @property
    def market_id(self):
        """Id of the market; `instruments.json` has its symbol."""
        return self.event.head.market_id

    @property
    def stream_id(self):
        """The venue's channel; 0 if it has none."""
        return self.event.head.stream_id

    @property
    def ingest_ts_ns(self):
        """Ingest time, equal to the time of the record."""
        return <int64_t> self.event.head.ingest_ts_ns

    @property
    def exchange_ts_ns(self):
        """The venue's time, or 0."""
        return <int64_t> self.event.head.exchange_ts_ns

    @property
    def seq(self):
        """Sequence number of the record; 0 if the event was decoded from bytes."""
        return self.event.head.seq

    @property
    def native_seq(self):
        """The venue's number of the event, or 0."""
        return self.event.head.native_seq

    @property
    def event_type(self):
        """An `EventType`, as an int."""
        return self.event.head.event_type

    @property
    def book_mode(self):
        """A `BookMode`, as an int."""
        return self.event.head.book_mode

    @property
    def flags(self):
        """`EventFlags`, as an int."""
        return self.event.head.flags

    @property
    def price_scale(self):
        """Decimals of the prices."""
        return self.event.price_scale

    @property
    def size_scale(self):
        """Decimals of the sizes."""
        return self.event.size_scale

    @property
    def delta(self):
        """Whether sizes are changes; otherwise they are the new sizes."""
        return <bint> self.event.delta

    @property
    def update_first(self):
        """The venue's first update id in this diff, or 0."""
        return self.event.update_first

    @property
    def update_last(self):
        """The venue's last update id in this diff, or 0; for a snapshot, its `native_seq`."""
        return self.event.update_last

    @property
    def update_prev(self):
        """The last update id of the previous diff, or 0."""
        return self.event.update_prev

    @property
    def bids(self):
        """The bids (price, size): a read-only structured array over the record, without a copy."""
        return self._levels(self.event.bids, self.event.bid_count)

    @property
    def asks(self):
        """The asks (price, size): a read-only structured array over the record, without a copy."""
        return self._levels(self.event.asks, self.event.ask_count)

    cdef object _levels(self, const byte* levels, uint32_t count):
        cdef const byte* start
        if _no_levels is None:
            _load_numpy()
        if count == 0:
            return _no_levels
        if type(self._source) is Record:
            start = (<Record> self._source)._data
        else:
            start = <const byte*> PyBytes_AS_STRING(self._source)
        # numpy first requests a writable buffer; a memoryview refuses it faster than a Record does.
        return _ndarray(count, _level_dtype, PyMemoryView_FromObject(self._source),
                        <const char*> levels - <const char*> start)

    @property
    def order(self):
        """The event of an order if `book_mode` is L3; else None, and None for a loss."""
        cdef L3Event* o = &self.event.order
        if (self.event.head.book_mode != <uint8_t> BookMode.l3
                or self.event.head.event_type == <uint8_t> EventType.loss):
            return None
        return L3Order(o.event_type, o.side, o.ord_type, o.exec_type, o.price_scale, o.size_scale,
                       o.flags, o.order_id, o.bid_order_id, o.ask_order_id, o.price, o.qty, o.amt)

    @property
    def loss(self):
        """The `LossRange` of a loss: what is missing before this event; else None."""
        if self.event.head.event_type != <uint8_t> EventType.loss:
            return None
        return LossRange(self.event.loss.cause, self.event.loss.first, self.event.loss.last)

    def __reduce__(self):
        return BookEvent.decode, (bytes(memoryview(self._source)),)

    def __eq__(self, other):
        if type(other) is not BookEvent:
            return NotImplemented
        return memoryview(self._source) == memoryview((<BookEvent> other)._source)

    __hash__ = None

    def __bytes__(self):
        return bytes(memoryview(self._source))

    def __repr__(self):
        cdef CBookEvent* e = &self.event
        what = _EVENT_NAMES[e.head.event_type]
        of = f"of market 0x{e.head.market_id:08X}"
        if e.head.event_type == <uint8_t> EventType.loss:
            return f"<BookEvent loss {of}: {self.loss}>"
        if e.head.book_mode == <uint8_t> BookMode.l3:
            o = self.order
            return (f"<BookEvent {_ORDER_NAMES[o.event_type]} {of}: order_id={o.order_id} "
                    f"side={o.side} price={o.price} qty={o.qty}>")
        if e.head.event_type > <uint8_t> EventType.diff:
            return f"<BookEvent {what} {of}>"
        ids = f", {e.update_first} … {e.update_last} after {e.update_prev}" if e.update_last else ""
        if e.head.event_type == <uint8_t> EventType.snapshot:
            ids = f" at {e.update_last}"
        bids = f"{e.bid_count} bid{'' if e.bid_count == 1 else 's'}"
        asks = f"{e.ask_count} ask{'' if e.ask_count == 1 else 's'}"
        return f"<BookEvent {what} {of}{ids}: {bids}, {asks}>"


def headers_of(Batch batch not None):
    """Return the headers of the book events of a batch as an array of `HEADER_DTYPE`.

    Records of other types are skipped. `seq` is the sequence number of the record.

    Raises:
        CorruptRecord: An event is invalid; the message has its sequence number.
        UnsupportedVersion: Another release wrote an event.
    """
    import numpy
    cdef BookCounts counts
    with nogil:
        counts = count_book_events(deref(batch._columns), batch._from, batch._to)
    headers = numpy.empty(counts.events, struct_dtype("BookEventHeader"))
    if counts.events == 0:
        return headers
    cdef char[::1] into = headers.view("b")
    with nogil:
        copy_headers(deref(batch._columns), batch._from, batch._to, <BookEventHeader*> &into[0])
    return headers


def levels_of(Batch batch not None):
    """Return all levels of all book events of a batch: event, side, price, size.

    `event` is the index of the book event in the batch, so ``headers_of(batch)[levels["event"]]``
    are the headers; `side` is 1 for bids and 2 for asks. Levels are in the order of the events:
    bids, then asks.

    Raises:
        CorruptRecord: An event is invalid; the message has its sequence number.
        UnsupportedVersion: Another release wrote an event.
    """
    import numpy
    cdef BookCounts counts
    with nogil:
        counts = count_book_events(deref(batch._columns), batch._from, batch._to)
    levels = numpy.empty(counts.levels, struct_dtype("LevelRow"))
    if counts.levels == 0:
        return levels
    cdef char[::1] into = levels.view("b")
    with nogil:
        copy_levels(deref(batch._columns), batch._from, batch._to, <CLevelRow*> &into[0],
                    counts.levels)
    return levels
