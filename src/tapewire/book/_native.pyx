# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Order books, native: `L2Book` and `L3Book`."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cython.operator cimport dereference as deref
from libcpp.utility cimport move

from tapewire._native cimport Batch
from tapewire.protocol._native cimport BookEvent, book_event_of

from collections import namedtuple

from tapewire.errors import ConcurrentUse, InvalidOption

cdef extern from "tapewire/book/batch.hpp" namespace "tapewire::book":
    cdef enum class RowPer:
        event
        level

    size_t c_apply_batch "tapewire::book::apply_batch"(
        CBook&, const BatchColumns&, size_t, size_t, size_t&) except +raise_python_error nogil
    vector[TopRow] c_tops "tapewire::book::tops"(
        CBook&, const BatchColumns&, size_t, size_t, RowPer,
        size_t&) except +raise_python_error nogil

cdef extern from *:
    """
    #include <memory>
    #include "tapewire/book/book.hpp"
    // Cython can make neither a shared_ptr to a non-copyable type nor a span.
    static inline std::span<const std::byte> tw_bytes(const void* data, size_t size) {
        return {static_cast<const std::byte*>(data), size};
    }
    static std::shared_ptr<tapewire::book::Book> tw_new_book(
            const tapewire::book::Options& options) {
        return std::make_shared<tapewire::book::Book>(options);
    }
    static std::shared_ptr<tapewire::book::Book> tw_load_book(
            const void* data, size_t size, const tapewire::book::Options& options) {
        return std::make_shared<tapewire::book::Book>(
            tapewire::book::Book::load(tw_bytes(data, size), options));
    }
    static tapewire::book::Options tw_saved_options(const void* data, size_t size) {
        return tapewire::book::Book::saved_options(tw_bytes(data, size));
    }
    """
    shared_ptr[CBook] tw_new_book(const Options&) except +raise_python_error
    shared_ptr[CBook] tw_load_book(const void*, size_t, const Options&) except +raise_python_error
    Options tw_saved_options(const void*, size_t) except +raise_python_error

Level = namedtuple("Level", "price size")
Level.__doc__ = """A price and the size at it, as integers at the scales of the book."""

Order = namedtuple("Order", "id side price remaining")
Order.__doc__ = """An order of an `L3Book`; `price` is None while it does not rest at a price."""

QueuePosition = namedtuple("QueuePosition", "orders_ahead size_ahead")
QueuePosition.__doc__ = """The orders ahead of an order at its price, and their total size."""

BookGap = namedtuple("BookGap", "cause first last seq timestamp_ns resynced")
BookGap.__doc__ = """Why a book became untrusted, and whether a later snapshot has resynced it.

`first` and `last` are the missing update ids (cause ``"venue_gap"``) or sequence numbers of the log
(``"record_gap"``) or of the feed (``"feed_gap"``), and 0 for other causes; `seq` and
`timestamp_ns` are those of the record at which the gap was detected.
"""

# In the order of the native enums.
cdef tuple _GAP_POLICIES = ("raise", "quarantine", "resync")
cdef tuple _RULES = (None, "szse", "sse", "continuous")
cdef tuple _UNKNOWN = ("ignore", "raise", "distrust")
cdef tuple _APPLIED = ("changed", "unchanged", "buffered", "ignored")
cdef dict _SIDES = {"buy": 1, "bid": 1, "sell": 2, "ask": 2}

cdef uint32_t _OPENING = 2, _CLOSING = 4, _RESTRICTED = 8


cdef int _choice(str name, tuple choices, object value) except -1:
    if value not in choices:
        raise InvalidOption(
            f"{name} must be one of {', '.join(map(repr, choices))}: {name}={value!r}")
    return choices.index(value)


cdef uint8_t _scale(str name, object value) except? 255:
    if type(value) is not int or not 0 <= value <= 18:
        raise InvalidOption(f"a scale must be from 0 to 18: {name}={value!r}")
    return value


cdef CSide _side(object side) except *:
    number = _SIDES.get(side) if isinstance(side, str) else None
    if number is None:
        raise InvalidOption(f'side must be "bid" or "ask" ("buy" or "sell"): side={side!r}')
    return <CSide> <int> number


cdef size_t _count(object n) except? 0:
    if n is None:
        return <size_t> -1
    if not PyIndex_Check(n):
        raise InvalidOption(f"a number of levels must be an int: n={n!r}")
    number = int(PyNumber_Index(n))
    if number < 0:
        raise InvalidOption(f"a number of levels must not be negative: n={n!r}")
    return min(number, 2**64 - 1)


@cython.final
@cython.no_gc
cdef class _Rows:
    """The rows of tops() as a buffer, without a copy."""

    cdef vector[TopRow] rows

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.rows.data(), self.rows.size() * sizeof(TopRow), 0,
                          flags)


@cython.no_gc
cdef class Turn:
    """Held during a call that changes books without the GIL."""

    cdef int take(self) except -1:
        if self.taken:
            raise ConcurrentUse("another thread is inside a call of this book",
                                hint="a book belongs to one thread at a time")
        self.taken = True
        return 0


cdef Book wrap_book(shared_ptr[CBook] native, Turn turn=None):
    cdef Book book
    if native.get().options().mode == CBookMode.l2:
        book = L2Book.__new__(L2Book)
    else:
        book = L3Book.__new__(L3Book)
    book._book = native
    if turn is not None:
        book._turn = turn
    return book


@cython.no_gc
cdef class Book:
    """The common base of `L2Book` and `L3Book`."""

    def __cinit__(self):
        self._turn = Turn.__new__(Turn)

    def __init__(self):
        raise TypeError("abstract: use L2Book or L3Book")

    # To be called last: converting arguments may run Python code, which may call __init__ again.
    cdef CBook* _native(self) except NULL:
        if self._turn.taken:
            raise ConcurrentUse("another thread is inside a call of this book",
                                hint="a book belongs to one thread at a time")
        if self._book.get() is NULL:
            raise TypeError("the book is not initialized: call __init__")
        return self._book.get()

    def apply(self, event):
        """Apply one event: a record, a `BookEvent`, or the bytes of one.

        Returns:
            ``"changed"``; ``"unchanged"`` (stale, a heartbeat, an unknown order); ``"buffered"``
            (kept until a snapshot comes) or ``"ignored"`` (the book is untrusted and remains so).

        Raises:
            GapDetected: Updates are missing and `on_gap` is ``"raise"``. Raised once; the next
                event can be applied.
            CorruptRecord: The bytes are not an event; or, if `on_gap` is ``"raise"``, a size is
                negative or a number does not fit.
            UnknownOrder: An order is unknown and `unknown` is ``"raise"``.
            InvalidOption: The event is for another instrument, or for the other kind of book.
        """
        cdef BookEvent given = book_event_of(event)
        return _APPLIED[<int> self._native().apply(given.event, given.event.head.seq)]

    def apply_batch(self, Batch batch not None):
        """Apply all book events of a batch, natively and without the GIL.

        Records of other types are skipped. The `applied` of an error is the number of records
        processed, including the one that caused it: ``batch[error.applied:]`` is the rest.

        Returns:
            How many events changed the book.
        """
        cdef CBook* book = self._native()
        cdef const BatchColumns* columns = batch._columns.get()
        cdef size_t done = 0, changed = 0
        self._turn.take()
        try:
            with nogil:
                changed = c_apply_batch(deref(book), deref(columns), batch._from, batch._to, done)
        except Exception as error:
            error.applied = done
            raise
        finally:
            self._turn.taken = False
        return changed

    def tops(self, Batch batch not None, *, per="event"):
        """Like `apply_batch`; return the best levels after each event or each changed level.

        With ``per="level"`` a diff yields a row for each of its levels, and any other event one
        row. Prices and sizes are 0 for an empty side, and while the book is untrusted.

        Returns:
            A structured array: timestamp_ns, bid_price, bid_size, ask_price, ask_size.
        """
        cdef RowPer rows_per = (
            RowPer.level if _choice("per", ("event", "level"), per) == 1 else RowPer.event)
        cdef _Rows made = _Rows.__new__(_Rows)
        cdef CBook* book = self._native()
        cdef const BatchColumns* columns = batch._columns.get()
        cdef size_t done = 0
        self._turn.take()
        try:
            with nogil:
                made.rows = move(c_tops(deref(book), deref(columns), batch._from, batch._to,
                                        rows_per, done))
        except Exception as error:
            error.applied = done
            raise
        finally:
            self._turn.taken = False
        import numpy
        from tapewire.book.rows import TOP_DTYPE
        return numpy.frombuffer(made, TOP_DTYPE) if made.rows.size() else numpy.empty(0, TOP_DTYPE)

    def record_gap(self, first, last):
        """Report that these records are missing from the log: the book becomes untrusted.

        Raises:
            GapDetected: `on_gap` is ``"raise"``.
        """
        cdef uint64_t first_number = first, last_number = last
        self._native().record_gap(first_number, last_number)

    def release(self):
        """End a quarantine: the book waits for its next snapshot (an `L3Book`: for a reset)."""
        self._native().release()

    cdef object _levels(self, CSide side, object n):
        cdef size_t count = _count(n)
        cdef CBook* book = self._native()
        cdef bint with_orders = book.options().mode == CBookMode.l3
        cdef vector[LevelRow] rows
        count = min(count, book.level_count(side))
        rows.resize(count)
        book.top(side, count, rows.data())
        from tapewire.book.rows import levels_array
        return levels_array(
            <const char[:count * sizeof(LevelRow)]> <const char*> rows.data() if count else b"",
            with_orders)

    def bids(self, n=None):
        """Return the best `n` bids (default: all): price, size and, in an `L3Book`, orders."""
        return self._levels(CSide.buy, n)

    def asks(self, n=None):
        """Return the best `n` asks (default: all): price, size and, in an `L3Book`, orders."""
        return self._levels(CSide.sell, n)

    cdef object _best(self, CSide side):
        cdef CLevel level
        if not self._native().best(side, level):
            return None
        return Level(level.price, level.size)

    @property
    def best_bid(self):
        """The best bid as a `Level`, or None."""
        return self._best(CSide.buy)

    @property
    def best_ask(self):
        """The best ask as a `Level`, or None."""
        return self._best(CSide.sell)

    @property
    def mid(self):
        """The mean of the best prices, in their units, as a float; None if a side is empty."""
        bid, ask = self._best(CSide.buy), self._best(CSide.sell)
        return None if bid is None or ask is None else (bid.price + ask.price) / 2

    @property
    def spread(self):
        """Best ask minus best bid, in the units of the prices; None if a side is empty."""
        bid, ask = self._best(CSide.buy), self._best(CSide.sell)
        return None if bid is None or ask is None else ask.price - bid.price

    @property
    def crossed(self):
        """Whether the best bid is at or above the best ask."""
        return self._native().crossed()

    def level_count(self, side):
        """Return the number of levels of a side."""
        cdef CSide which = _side(side)
        return self._native().level_count(which)

    def depth(self, side, n=None):
        """Return the total size of the best `n` levels (default: all); at most 2**63 - 1."""
        cdef CSide which = _side(side)
        cdef size_t count = _count(n)
        return self._native().depth(which, count)

    def hash(self):
        """Return a hash of the content as 32 hexadecimal digits; the same on every host.

        It is XXH3-128 over all levels (in an `L3Book`: all resting orders), see the format of saved
        books.
        """
        cdef Hash128 h = self._native().hash()
        return f"{h.high:016x}{h.low:016x}"

    @property
    def trusted(self):
        """Whether the book is known to match the venue's."""
        return self._native().trusted()

    @property
    def distrust(self):
        """Why the book is untrusted: ``"venue_gap"``, ``"no_snapshot"`` …; else None."""
        cdef CBook* book = self._native()
        return None if book.trusted() else (<bytes> name_of(book.distrust())).decode()

    @property
    def distrust_reason(self):
        """Why the book is untrusted, as a sentence; else None."""
        cdef CBook* book = self._native()
        return None if book.trusted() else book.distrust_reason().decode()

    @property
    def quarantined(self):
        """Whether all events are ignored until `release()`."""
        return self._native().quarantined()

    @property
    def gaps(self):
        """The gaps that made this book untrusted (not resets): `BookGap`s, oldest first."""
        cdef CBook* book = self._native()
        cdef CGap gap
        cdef size_t i
        made = []
        for i in range(book.gaps().size()):
            gap = book.gaps()[i]
            made.append(BookGap((<bytes> name_of(gap.cause)).decode(), gap.first, gap.last, gap.seq,
                                gap.timestamp_ns, gap.resynced))
        return made

    @property
    def last_update(self):
        """The venue's id of the last update applied; 0 if it has none."""
        return self._native().last_update()

    @property
    def last_seq(self):
        """Sequence number of the last record passed to the book, applied or not."""
        return self._native().last_seq()

    @property
    def last_timestamp_ns(self):
        """Timestamp of the last record passed to the book, applied or not."""
        return self._native().last_timestamp_ns()

    @property
    def last_exchange_ns(self):
        """The venue's time of the last event that had one; 0 before that."""
        return self._native().last_exchange_ns()

    @property
    def waiting(self):
        """How many diffs are buffered until a snapshot comes."""
        return self._native().waiting()

    @property
    def price_scale(self):
        """Decimals of prices: ``price / 10 ** price_scale``."""
        return self._native().options().price_scale

    @property
    def size_scale(self):
        """Decimals of sizes."""
        return self._native().options().size_scale

    @property
    def on_gap(self):
        """``"raise"``, ``"quarantine"`` or ``"resync"``."""
        return _GAP_POLICIES[<int> self._native().options().on_gap]

    @property
    def memory_bytes(self):
        """Memory used by the book, in bytes."""
        return self._native().memory_bytes()

    def save(self):
        """Return the book as bytes, for `load`; see the format of saved books.

        Raises:
            InvalidOption: The book is untrusted.
        """
        cdef vector[byte] out
        self._native().save(out)
        return PyBytes_FromStringAndSize(<const char*> out.data(), out.size())

    def __repr__(self):
        from tapewire.book.show import summary
        return summary(self)

    def _repr_html_(self):
        from tapewire.book.show import ladder_html
        return ladder_html(self)


cdef Options _options_to_load(bytes payload, CBookMode mode, object on_gap) except *:
    cdef Options options = tw_saved_options(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
    options.mode = mode  # load() raises if the mode differs
    options.on_gap = <GapPolicy> _choice("on_gap", _GAP_POLICIES, on_gap)
    return options


@cython.no_gc
cdef class L2Book(Book):
    """A book of price levels, from snapshots and diffs.

    Untrusted until its first snapshot; earlier diffs are buffered and applied if they continue it.

    Args:
        price_scale: Decimals of the book's prices; events of another scale are converted exactly.
        size_scale: The same for sizes.
        on_gap: What to do when updates are missing: ``"raise"`` `GapDetected` once,
            ``"quarantine"`` (ignore all events until `release()`), or ``"resync"`` (continue from
            the next snapshot). Until then the book remains unchanged and untrusted; with
            ``"raise"`` too it continues from the next snapshot.
        rules: ``"continuous"``: a book that is crossed after an event is untrusted until the next
            snapshot. None: a book may be crossed.

    Example:
        >>> from tapewire import book
        >>> from tapewire.protocol import market
        >>> from tapewire.protocol.instruments import Instrument
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> b = book.L2Book(price_scale=2, size_scale=3)
        >>> b.apply(market.l2_snapshot(btc, 1, bids=[(10000, 5)], asks=[(10010, 7)], native_seq=4))
        'changed'
        >>> b.apply(market.l2_diff(btc, 2, bids=[(10005, 3)], asks=[], first=5, last=5, prev=4))
        'changed'
        >>> b.best_bid, b.spread, b.bids(2)["price"].tolist()
        (Level(price=10005, size=3), 5, [10005, 10000])
        >>> b
        <L2Book 100.05 × 0.003 | 100.10 × 0.007, 2 bids, 1 ask, update 5>
    """

    def __init__(self, price_scale=8, size_scale=8, *, on_gap="raise", rules=None):
        cdef Options options
        options.mode = CBookMode.l2
        options.price_scale = _scale("price_scale", price_scale)
        options.size_scale = _scale("size_scale", size_scale)
        options.rules = <Rules> _choice("rules", _RULES, rules)
        options.on_gap = <GapPolicy> _choice("on_gap", _GAP_POLICIES, on_gap)
        if self._book.get() is not NULL:
            self._native()  # initialized again: not while another thread is inside
            self._turn = Turn.__new__(Turn)
        self._book = tw_new_book(options)

    @staticmethod
    def load(payload, *, on_gap="raise"):
        """Load a book from the bytes of `save`.

        Raises:
            CorruptMetadata: The bytes are damaged, or not from `save`.
            UnsupportedVersion: Another release wrote them.
            InvalidOption: The saved book is an `L3Book`.
        """
        cdef bytes data = bytes(payload)
        cdef Options options = _options_to_load(data, CBookMode.l2, on_gap)
        return wrap_book(tw_load_book(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), options))


@cython.no_gc
cdef class L3Book(Book):
    """A book of orders, in order of arrival at each price.

    Starts empty and trusted. Orders are added, cancelled (in part: `qty`; entirely: 0), modified (a
    new price or a larger size moves the order to the end of the queue; a smaller size keeps its
    place) and traded; a reset empties the book.

    Args:
        rules: Rules of the venue: ``"szse"`` (market orders rest where they last traded, ``U``
            joins the best of its own side), ``"sse"`` (a trade with an aggressor reduces only the
            other side), ``"continuous"`` or None. With any of them, a book that is crossed outside
            an auction is untrusted.
        price_scale: Decimals of the book's prices; events of another scale are converted exactly.
        size_scale: The same for sizes.
        on_gap: As for `L2Book`, with a reset instead of a snapshot.
        unknown: What to do when an event refers to an unknown order, or adds a known one, which a
            complete feed never does: ``"distrust"`` the book until the next reset, ``"raise"``
            `UnknownOrder`, or ``"ignore"``. All of them count it.

    Example:
        >>> from tapewire import book
        >>> from tapewire.protocol import market
        >>> from tapewire.protocol.instruments import Instrument
        >>> stock = Instrument.of("xnas", "ACME", price_scale=4, size_scale=0, book_mode="l3")
        >>> b = book.L3Book(price_scale=4, size_scale=0)
        >>> for order_id, qty in (7, 100), (8, 50):
        ...     _ = b.apply(market.l3_event(stock, 1, type=market.L3Type.ADD, side=market.Side.BUY,
        ...                                 order_id=order_id, price=99500, qty=qty))
        >>> b.queue_position(8), b.bids().tolist()
        (QueuePosition(orders_ahead=1, size_ahead=100), [(99500, 150, 2)])
    """

    def __init__(self, rules=None, *, price_scale=8, size_scale=8, on_gap="raise",
                 unknown="distrust"):
        cdef Options options
        options.mode = CBookMode.l3
        options.price_scale = _scale("price_scale", price_scale)
        options.size_scale = _scale("size_scale", size_scale)
        options.rules = <Rules> _choice("rules", _RULES, rules)
        options.on_gap = <GapPolicy> _choice("on_gap", _GAP_POLICIES, on_gap)
        options.unknown = <Unknown> _choice("unknown", _UNKNOWN, unknown)
        if self._book.get() is not NULL:
            self._native()  # initialized again: not while another thread is inside
            self._turn = Turn.__new__(Turn)
        self._book = tw_new_book(options)

    @staticmethod
    def load(payload, *, on_gap="raise", unknown="distrust"):
        """Load a book from the bytes of `save`; raises as `L2Book.load` does."""
        cdef bytes data = bytes(payload)
        cdef Options options = _options_to_load(data, CBookMode.l3, on_gap)
        options.unknown = <Unknown> _choice("unknown", _UNKNOWN, unknown)
        return wrap_book(tw_load_book(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), options))

    def order(self, id):
        """Return the `Order` with this id, or None."""
        cdef OrderRow row
        cdef uint64_t number = id
        if not self._native().order(number, row):
            return None
        return Order(row.id, "buy" if row.side == CSide.buy else "sell",
                     row.price if row.rests else None, row.remaining)

    def queue_position(self, id):
        """Return the `QueuePosition` of an order; None if it is unknown or has no price."""
        cdef uint64_t number = id, orders_ahead = 0
        cdef int64_t size_ahead = 0
        if not self._native().queue_position(number, orders_ahead, size_ahead):
            return None
        return QueuePosition(orders_ahead, size_ahead)

    def order_count(self, side=None, price=None):
        """Return the number of orders at a price; without arguments, of all orders."""
        cdef CSide which
        cdef int64_t at
        if side is None and price is None:
            return self._native().order_count()
        if side is None or price is None:
            raise InvalidOption(
                f"pass both side and price, or none: side={side!r}, price={price!r}")
        which, at = _side(side), price
        return self._native().order_count_at(which, at)

    def orders(self, side, price):
        """Return the orders at a price, oldest first: an array of order_id and remaining."""
        cdef CSide which = _side(side)
        cdef int64_t at = price
        cdef vector[OrderRow] rows = self._native().orders(which, at)
        import numpy
        from tapewire.book.rows import ORDER_DTYPE
        cdef size_t i
        return numpy.array([(rows[i].id, rows[i].remaining) for i in range(rows.size())],
                           ORDER_DTYPE)

    @property
    def rules(self):
        """``"szse"``, ``"sse"``, ``"continuous"`` or None."""
        return _RULES[<int> self._native().options().rules]

    @property
    def unknown(self):
        """``"ignore"``, ``"raise"`` or ``"distrust"``."""
        return _UNKNOWN[<int> self._native().options().unknown]

    @property
    def unknown_count(self):
        """Number of events that referred to an unknown order, or added a known one."""
        return self._native().unknown_count()

    @property
    def phase(self):
        """By the flags of the last event: ``"opening"``, ``"closing"`` or ``"continuous"``."""
        cdef uint32_t flags = self._native().phase()
        return "opening" if flags & _OPENING else "closing" if flags & _CLOSING else "continuous"

    @property
    def cancel_restricted(self):
        """Whether the last event was a cancel in a period in which the venue forbids them."""
        return bool(self._native().phase() & _RESTRICTED)
