# Encoding of book events, one function each; part of _native.pyx.

cdef extern from "tapewire/market/encode.hpp" namespace "tapewire::market":
    cppclass EventHead:
        uint64_t timestamp_ns
        uint64_t exchange_ts_ns
        uint64_t native_seq
        uint32_t market_id
        uint32_t stream_id
        uint16_t venue_id
        uint8_t price_scale
        uint8_t size_scale

    cppclass UpdateIds:
        uint64_t first
        uint64_t last
        uint64_t prev

    const size_t kDiffHeadBytes, kSnapshotHeadBytes, kOrderBytes, kLossBytes
    BookEventHeader make_header(const EventHead&, EventType, BookMode, uint16_t, size_t)
    byte* begin_diff(byte*, const EventHead&, const UpdateIds&, cbool, uint16_t, uint16_t)
    byte* begin_snapshot(byte*, const EventHead&, uint32_t, uint32_t)
    void encode_order(byte*, const EventHead&, L3Event)
    void encode_loss(byte*, const EventHead&, BookMode, const Loss&)


cdef str _shown(object value):
    """The repr; for an int that is too large for one, its size."""
    try:
        return repr(value)
    except ValueError:
        return f"an int of {value.bit_length()} bits"


cdef int64_t _signed(str name, object value) except? -1:
    cdef int overflow = 0
    cdef int64_t result
    if not PyLong_Check(value):
        if not hasattr(value, "__index__"):
            raise InvalidMessage(f"{name} must be an int: {name}={value!r}")
        value = value.__index__()
    result = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        raise InvalidMessage(f"{name} must be from {-2**63} to {2**63 - 1}: {name}={_shown(value)}")
    return result


cdef uint64_t _unsigned(str name, object value, uint64_t most) except? 1:
    cdef int overflow = 0
    cdef int64_t small
    if not PyLong_Check(value):
        if not hasattr(value, "__index__"):
            raise InvalidMessage(f"{name} must be an int: {name}={value!r}")
        value = value.__index__()
    small = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow == 0 and small >= 0 and <uint64_t> small <= most:
        return <uint64_t> small
    if overflow > 0 and value <= most:
        return value
    raise InvalidMessage(f"{name} must be from 0 to {most}: {name}={_shown(value)}")


cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF
cdef uint64_t MOST_TIME = 0x7FFFFFFFFFFFFFFF


cdef int _fill_head(EventHead* head, object instrument, object timestamp_ns, object exchange_ns,
                    object native_seq, object stream_id) except -1:
    head.timestamp_ns = _unsigned("timestamp_ns", timestamp_ns, MOST_TIME)
    head.exchange_ts_ns = _unsigned("exchange_ns", exchange_ns, MOST_TIME)
    head.native_seq = _unsigned("native_seq", native_seq, MOST)
    head.stream_id = <uint32_t> _unsigned("stream_id", stream_id, 0xFFFFFFFF)
    head.venue_id = <uint16_t> _unsigned("venue_id", instrument.venue_id, 0xFFFF)
    head.market_id = <uint32_t> _unsigned("market_id", instrument.market_id, 0xFFFFFFFF)
    head.price_scale = <uint8_t> _unsigned("price_scale", instrument.price_scale, kMaxScale)
    head.size_scale = <uint8_t> _unsigned("size_scale", instrument.size_scale, kMaxScale)
    return 0


cdef bint _are_levels(Py_buffer* buffer) noexcept:
    """Whether it is a contiguous buffer of pairs of int64."""
    return (buffer.ndim == 2 and buffer.shape[1] == 2 and buffer.itemsize == 8
            and buffer.strides[1] == 8 and buffer.strides[0] == 16
            and buffer.format is not NULL and (buffer.format[0] == b"l" or buffer.format[0] == b"q")
            and buffer.format[1] == 0)


cdef class _Levels:
    """The levels of one side of an event to be encoded."""

    cdef str name
    cdef object given         # a tuple of pairs, or the owner of the buffer
    cdef Py_buffer buffer
    cdef bint has_buffer
    cdef Py_ssize_t count

    def __cinit__(self):
        self.has_buffer = False

    def __dealloc__(self):
        if self.has_buffer:
            PyBuffer_Release(&self.buffer)

    cdef int take(self, str name, object levels) except -1:
        self.name = name
        if not PyObject_CheckBuffer(levels):
            self.given = tuple(levels)  # a copy: a price's __index__ may change the caller's list
            self.count = len(self.given)
            return 0
        # Calling numpy costs more than the encoding: a suitable buffer is used directly.
        PyObject_GetBuffer(levels, &self.buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT)
        self.has_buffer = True
        if _are_levels(&self.buffer):
            self.count = self.buffer.shape[0]
        else:
            PyBuffer_Release(&self.buffer)
            self.has_buffer = False
            self._take_array(levels)
        return 0

    cdef int _take_array(self, object levels) except -1:
        import numpy
        array = numpy.asarray(levels)
        if array.dtype == struct_dtype("Level") and array.ndim == 1:
            array = numpy.ascontiguousarray(array)
        elif array.dtype.kind in "iu" and (
                array.ndim == 2 and array.shape[1] == 2 or array.size == 0):
            if array.dtype.kind == "u" and array.size and int(array.max()) > 2**63 - 1:
                raise InvalidMessage(f"{self.name} must fit 64 bits with a sign: max={array.max()}")
            array = numpy.ascontiguousarray(array, numpy.int64)
        else:
            raise InvalidMessage(
                f"{self.name} must be integers (price, size), of shape (n, 2) or LEVEL_DTYPE: "
                f"shape={array.shape}, dtype={array.dtype}",
                hint="scaled_levels() makes such an array from decimal text")
        self.given = array
        PyObject_GetBuffer(array.view("b").reshape(-1), &self.buffer, PyBUF_SIMPLE)
        self.has_buffer = True
        self.count = self.buffer.len // 16
        return 0

    cdef byte* put(self, byte* into) except NULL:
        """Copy the levels; return their end."""
        cdef Py_ssize_t i
        cdef int64_t pair[2]
        if self.has_buffer:
            memcpy(into, self.buffer.buf, self.count * 16)
            return into + self.count * 16
        for i in range(self.count):
            try:
                price, size = self.given[i]
            except (TypeError, ValueError):
                raise InvalidMessage(
                    f"{self.name} must be pairs (price, size): "
                    f"{self.name}[{i}]={self.given[i]!r}") from None
            pair[0] = _signed("price", price)
            pair[1] = _signed("size", size)
            memcpy(into + 16 * i, pair, 16)
        return into + self.count * 16


cdef int _too_many(_Levels side, Py_ssize_t most, str what, str hint) except -1:
    if side.count > most:
        raise InvalidMessage(
            f"a {what} has at most {most} levels per side: {side.name}={side.count}", hint=hint)
    return 0


cdef dict _LOSS_CAUSES = {
    "rejected": 1, "missing": 2, "out_of_order": 3, "damaged": 4, "no_snapshot": 5,
    "unknown_order": 6, "venue": 7, "partial": 8,
}


def l2_diff(instrument, timestamp_ns, *, bids=(), asks=(), first=0, last=0, prev=0, exchange_ns=0,
            native_seq=None, delta=False, stream_id=0):
    """Encode a change of price levels; append it with type 0x1000 and the same `timestamp_ns`.

    Args:
        instrument: The instrument: `venue_id`, `market_id` and scales are taken from it.
        timestamp_ns: Ingest time; the record must have the same.
        bids: Levels (price, size): an (n, 2) array of int64, an array of `LEVEL_DTYPE`, or a list
            of pairs. A size of 0 removes the level.
        asks: The same for the other side.
        first: The venue's first update id in it; 0 if the venue has none.
        last: The venue's last update id in it.
        prev: The last update id of the previous diff.
        exchange_ns: The venue's time; 0 if unknown.
        native_seq: The venue's number of the event; default: `last`.
        delta: Whether sizes are changes instead of new sizes.
        stream_id: The venue's channel; 0 if it has none.

    Raises:
        InvalidMessage: A value does not fit; the message names it.
    """
    cdef EventHead head
    cdef UpdateIds ids
    cdef _Levels bid_side = _Levels.__new__(_Levels)
    cdef _Levels ask_side = _Levels.__new__(_Levels)
    cdef byte* at
    ids.first = _unsigned("first", first, MOST)
    ids.last = _unsigned("last", last, MOST)
    ids.prev = _unsigned("prev", prev, MOST)
    _fill_head(&head, instrument, timestamp_ns, exchange_ns,
               last if native_seq is None else native_seq, stream_id)
    bid_side.take("bids", bids)
    ask_side.take("asks", asks)
    _too_many(bid_side, 0xFFFF, "diff",
              "split it in two, the second with prev=last, or write a snapshot")
    _too_many(ask_side, 0xFFFF, "diff",
              "split it in two, the second with prev=last, or write a snapshot")
    payload = PyBytes_FromStringAndSize(
        NULL, kDiffHeadBytes + 16 * (bid_side.count + ask_side.count))
    at = begin_diff(<byte*> PyBytes_AS_STRING(payload), head, ids, bool(delta),
                    <uint16_t> bid_side.count, <uint16_t> ask_side.count)
    ask_side.put(bid_side.put(at))
    return payload


def l2_snapshot(instrument, timestamp_ns, *, bids=(), asks=(), native_seq=0, exchange_ns=0,
                stream_id=0):
    """Encode a complete book of price levels; `native_seq` is the last update id it contains.

    The arguments are those of `l2_diff`.

    Raises:
        InvalidMessage: A value does not fit; the message names it.
    """
    cdef EventHead head
    cdef _Levels bid_side = _Levels.__new__(_Levels)
    cdef _Levels ask_side = _Levels.__new__(_Levels)
    cdef byte* at
    _fill_head(&head, instrument, timestamp_ns, exchange_ns, native_seq, stream_id)
    bid_side.take("bids", bids)
    ask_side.take("asks", asks)
    # Together they must fit the 32 bits of record_len.
    _too_many(bid_side, 1 << 26, "snapshot", "no venue has a book of this size")
    _too_many(ask_side, 1 << 26, "snapshot", "no venue has a book of this size")
    payload = PyBytes_FromStringAndSize(
        NULL, kSnapshotHeadBytes + 16 * (bid_side.count + ask_side.count))
    at = begin_snapshot(<byte*> PyBytes_AS_STRING(payload), head, <uint32_t> bid_side.count,
                        <uint32_t> ask_side.count)
    ask_side.put(bid_side.put(at))
    return payload


def l3_event(instrument, timestamp_ns, *, type, side=0, order_id=0, bid_order_id=0, ask_order_id=0,
             price=0, qty=0, amt=0, ord_type=0, exec_type=0, flags=0, native_seq=0, exchange_ns=0,
             stream_id=0):
    """Encode an event of one order.

    Args:
        instrument: The instrument.
        timestamp_ns: Ingest time; the record must have the same.
        type: An `L3Type`: add, cancel, modify, trade, reset or heartbeat.
        side: A `Side`; for a trade, that of the aggressor.
        order_id: The order.
        bid_order_id: For a trade, the buyer's order. If it is not 0, `L3Flags.HAS_BID` is set.
        ask_order_id: For a trade, the seller's order. If it is not 0, `L3Flags.HAS_ASK` is set.
        price: Price, scaled by the instrument's `price_scale`.
        qty: Size, scaled by the instrument's `size_scale`.
        amt: Turnover, if the venue sends it.
        ord_type: The venue's letter as a number, ``ord("2")``.
        exec_type: The venue's letter as a number.
        flags: `L3Flags`.
        native_seq: The venue's number of the event.
        exchange_ns: The venue's time; 0 if unknown.
        stream_id: The venue's channel.

    Raises:
        InvalidMessage: A value does not fit; the message names it.
    """
    cdef EventHead head
    cdef L3Event order
    _fill_head(&head, instrument, timestamp_ns, exchange_ns, native_seq, stream_id)
    memset(&order, 0, sizeof(L3Event))  # reserved bytes too
    order.event_type = <uint8_t> _unsigned("type", type, 6)
    if order.event_type == 0:
        raise InvalidMessage("type must be from 1 to 6: type=0", hint="see market.L3Type")
    order.side = <uint8_t> _unsigned("side", side, 2)
    order.ord_type = <uint8_t> _unsigned("ord_type", ord_type, 0xFF)
    order.exec_type = <uint8_t> _unsigned("exec_type", exec_type, 0xFF)
    order.flags = <uint32_t> _unsigned("flags", flags, 63)
    order.order_id = _unsigned("order_id", order_id, MOST)
    order.bid_order_id = _unsigned("bid_order_id", bid_order_id, MOST)
    order.ask_order_id = _unsigned("ask_order_id", ask_order_id, MOST)
    order.price = _signed("price", price)
    order.qty = _signed("qty", qty)
    order.amt = _signed("amt", amt)
    if order.bid_order_id != 0:
        order.flags |= kL3HasBidId
    if order.ask_order_id != 0:
        order.flags |= kL3HasAskId
    payload = PyBytes_FromStringAndSize(NULL, kOrderBytes)
    encode_order(<byte*> PyBytes_AS_STRING(payload), head, order)
    return payload


cdef object _plain_event(EventType event_type, object instrument, object timestamp_ns,
                         object book_mode, object native_seq, object exchange_ns,
                         object stream_id):
    cdef EventHead head
    cdef BookEventHeader header
    cdef uint8_t mode = <uint8_t> _unsigned("book_mode", book_mode, 1)
    _fill_head(&head, instrument, timestamp_ns, exchange_ns, native_seq, stream_id)
    header = make_header(head, event_type, BookMode.l3 if mode else BookMode.l2, 0,
                         sizeof(BookEventHeader))
    return PyBytes_FromStringAndSize(<char*> &header, sizeof(BookEventHeader))


def reset(instrument, timestamp_ns, *, book_mode=0, native_seq=0, exchange_ns=0, stream_id=0):
    """Encode a reset: the book is empty until the venue sends it again."""
    return _plain_event(EventType.reset, instrument, timestamp_ns, book_mode, native_seq,
                        exchange_ns, stream_id)


def heartbeat(instrument, timestamp_ns, *, book_mode=0, native_seq=0, exchange_ns=0, stream_id=0):
    """Encode a heartbeat: the feed is alive, the book unchanged."""
    return _plain_event(EventType.heartbeat, instrument, timestamp_ns, book_mode, native_seq,
                        exchange_ns, stream_id)


def loss(instrument, timestamp_ns, cause, *, first=0, last=0, book_mode=None, native_seq=0,
         exchange_ns=0, stream_id=0):
    """Encode a loss: what comes before this event is not complete, or not valid.

    A book that it is applied to is untrusted until its next snapshot, or reset in a book of orders.

    Args:
        instrument: The instrument.
        timestamp_ns: Ingest time; the record must have the same.
        cause: A `LossCause`, or its name in lower case.
        first: The first missing sequence number of the feed; 0 if unknown.
        last: The last one.
        book_mode: A `BookMode`; default: that of the instrument.
        native_seq: The venue's number of the event.
        exchange_ns: The venue's time; 0 if unknown.
        stream_id: The venue's channel.

    Raises:
        InvalidMessage: A value does not fit; the message names it.
    """
    cdef EventHead head
    cdef Loss body
    if book_mode is None:
        book_mode = 1 if instrument.book_mode == "l3" else 0
    cdef uint8_t mode = <uint8_t> _unsigned("book_mode", book_mode, 1)
    if isinstance(cause, str):
        if cause not in _LOSS_CAUSES:
            raise InvalidMessage(f"unknown cause of a loss: cause={cause!r}",
                                 hint=f"one of {', '.join(_LOSS_CAUSES)}")
        cause = _LOSS_CAUSES[cause]
    _fill_head(&head, instrument, timestamp_ns, exchange_ns, native_seq, stream_id)
    memset(&body, 0, sizeof(Loss))  # reserved bytes too
    body.cause = <uint16_t> _unsigned("cause", cause, kMaxLossCause)
    body.first = _unsigned("first", first, MOST)
    body.last = _unsigned("last", last, MOST)
    if body.cause == 0 or body.first > body.last:
        raise InvalidMessage(
            f"a loss must have a cause, and first must not be above last: cause={cause}, "
            f"first={first}, last={last}")
    payload = PyBytes_FromStringAndSize(NULL, kLossBytes)
    encode_loss(<byte*> PyBytes_AS_STRING(payload), head,
                BookMode.l3 if mode else BookMode.l2, body)
    return payload


def l3_header(instrument):
    """Return the bytes of the header that `l3_rows` repeats."""
    cdef EventHead head
    cdef BookEventHeader header
    _fill_head(&head, instrument, 0, 0, 0, 0)
    header = make_header(head, EventType.diff, BookMode.l3, kEventAbsolute | kEventHasScale,
                         kOrderBytes)
    return PyBytes_FromStringAndSize(<char*> &header, sizeof(BookEventHeader))
