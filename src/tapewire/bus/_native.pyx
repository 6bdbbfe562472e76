# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The fan-in reader, on the native merge."""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from cython.operator cimport dereference as deref
from libcpp cimport bool as cbool
from libcpp.optional cimport optional
from cpython.object cimport PyObject
from libcpp.string cimport string
from libcpp.vector cimport vector

from tapewire._native cimport (Cursor, CursorReader, Descriptor, MappingRef, Record, RecordView,
                               Views, WaitKind, int64_t, raise_python_error, seconds_to_ns,
                               uint16_t, uint64_t, views_of, wait_option)

import os
from collections import namedtuple

from tapewire.config import SpinThenPark, check_whole
from tapewire.errors import ConcurrentUse, InvalidName, InvalidOption

cdef extern from "tapewire/fan_in.hpp" namespace "tapewire":
    cppclass FanInOptions:
        int64_t max_skew_ns
        WaitKind wait
        int64_t wait_ns

    cppclass Counts "tapewire::FanIn::Counts":
        uint64_t records
        uint64_t late

    cppclass CFanIn "tapewire::FanIn":
        CFanIn(const FanInOptions&) except +raise_python_error
        uint16_t add(const string&, Cursor&, const optional[uint64_t]&) except +raise_python_error
        void remove(uint16_t)
        Counts counts(uint16_t)
        uint16_t source()
        optional[uint64_t] last_seq()
        void follow(cbool)
        void interrupt()
        int wake_fd() except +raise_python_error
        bint forked_away()

cdef extern from *:
    """
    static inline tapewire::Cursor* tw_fan_cursor(tapewire::FanIn* fan) { return fan; }
    """
    Cursor* tw_fan_cursor(CFanIn*)

cdef extern from "tapewire/futex.hpp" namespace "tapewire":
    void futex_wait_any_is_unsupported(cbool)


def pretend_old_kernel(bint old):
    """Wait as on a system without futex_waitv; for tests of the fallback."""
    futex_wait_any_is_unsupported(old)


SourceCounts = namedtuple("SourceCounts", "records late")
SourceCounts.__doc__ = """Records read from a source; `late` ones follow one with a later time."""


# The garbage collector must not clear the fields: `_lent` is needed to notify the readers.
@cython.no_gc_clear
cdef class FanInReader(CursorReader):
    """Merges readers into one, ordered by timestamp, then source name, then sequence number.

    A `Record` has the name of its log as `source`; a `Batch` has a column of names. The readers may
    be of any kind. While they belong to this reader, only it moves them; each of them is positioned
    after the last record that this reader returned from it, and `commit()` commits that position
    for every named reader.

    Args:
        readers: The readers by source name.
        max_skew: Seconds for which a source without a record may delay the records of the others. A
            record that comes later than that is returned at once, out of order, and counted as
            `late`. 0 returns each record as soon as it is seen. None is for replays, where nothing
            may be late: calls that never block merge what is available now, and `follow` and `wait`
            wait until every source that still has a writer has a record.
        wait: How `wait` and `follow` wait.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> with tw.open_publisher(tmp / "a", segment_bytes=1 << 20) as a:
        ...     with tw.open_publisher(tmp / "b", segment_bytes=1 << 20) as b:
        ...         for time, writer in [(1, a), (2, b), (3, b), (4, a)]:
        ...             _ = writer.append(1, b"", timestamp_ns=time)
        >>> readers = {"a": tw.open_log(tmp / "a"), "b": tw.open_log(tmp / "b")}
        >>> with bus.FanInReader(readers) as fan:
        ...     [(record.source, record.seq) for record in fan]
        [('a', 0), ('b', 0), ('b', 1), ('a', 1)]
    """

    cdef CFanIn* _fan
    cdef dict _readers        # readers by name
    cdef vector[PyObject*] _lent  # the same by slot, not counted: the dict may be cleared first
    cdef list _names          # by slot; None where it is free
    cdef list _views_by_slot
    cdef list _to_close       # readers that were closed during a call of this reader
    cdef readonly object max_skew
    cdef readonly str kind

    def __init__(self, readers=None, max_skew=None, *, wait=SpinThenPark()):
        cdef FanInOptions options
        if self._fan is not NULL:
            raise RuntimeError("already open")
        if max_skew is not None:
            if isinstance(max_skew, bool) or not isinstance(max_skew, (int, float)):
                raise TypeError(f"max_skew must be seconds or None: max_skew={max_skew!r}")
            if not max_skew >= 0:
                raise InvalidOption(f"max_skew must be at least 0: max_skew={max_skew!r}")
            options.max_skew_ns = seconds_to_ns(max_skew)
        wait_option(wait, &options.wait, &options.wait_ns)
        self.max_skew = max_skew
        self.kind = "fan-in"
        self._readers = {}
        self._names = []
        self._views_by_slot = []
        self._to_close = []
        self._fan = new CFanIn(options)
        self._cursor = tw_fan_cursor(self._fan)
        try:
            for name, reader in dict(readers or {}).items():
                self.add(name, reader)
        except BaseException:
            self.close()
            raise

    def __dealloc__(self):
        self._cursor = NULL
        if self._fan is not NULL:
            self._give_back()
            del self._fan

    cdef bint _forked(self):
        return self._fan is not NULL and self._fan.forked_away()

    def add(self, name, reader, *, seq_to=None):
        """Add a reader; its records are merged from now on.

        Args:
            name: Name of the source.
            reader: A reader of any kind.
            seq_to: The source ends before its first record with this sequence number or above.

        Raises:
            InvalidName: The name is empty, in use, or not text that can be encoded.
            TypeError: `reader` is not a Tapewire reader.
            ConcurrentUse: The reader belongs to another fan-in.
        """
        cdef uint16_t slot
        self._check()
        if type(name) is not str or not name:
            raise InvalidName(f"a source name must be text: name={name!r}")
        if name in self._readers:
            raise InvalidName(f"source name already in use: name={name!r}",
                              hint="remove() it first")
        if not isinstance(reader, CursorReader):
            raise TypeError(f"a source must be a Tapewire reader: {name}={reader!r}")
        if reader is self:
            raise InvalidOption("a fan-in cannot be its own source")
        cdef bytes encoded
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            raise InvalidName(
                f"a source name must be text that can be encoded: name={name!r}") from None
        # Free slots are used first, so there is one at or before this. Below, only the native call
        # can fail, and no other code runs: the reader is either added or not.
        cdef size_t room = len(self._readers) + 1
        while len(self._names) < <Py_ssize_t> room:
            self._names.append(None)
        while len(self._views_by_slot) < <Py_ssize_t> room:
            self._views_by_slot.append(None)
        if self._lent.size() < room:
            self._lent.resize(room, NULL)
        cdef optional[uint64_t] end
        if seq_to is not None:
            check_whole("seq_to", seq_to, 0, 2**64 - 1)
            end = optional[uint64_t](<uint64_t> seq_to)
        cdef CursorReader source = <CursorReader> reader
        source._lend(self)
        try:
            self._readers[name] = source
            slot = self._fan.add(encoded, deref(source._lent_cursor), end)
        except BaseException:
            self._readers.pop(name, None)
            source._take_back()
            raise
        source._slot = slot
        self._lent[slot] = <PyObject*> source
        self._names[slot] = name

    def remove(self, name):
        """Remove a source and return its reader, positioned after the last record read from it.

        Raises:
            KeyError: There is no such source.
        """
        reader = self._readers.get(name)
        self._check()
        if reader is None:
            raise KeyError(f"no such source: name={name!r}")
        self._take_out(reader)
        return reader

    cdef int _take_out(self, CursorReader lent) except -1:
        cdef uint16_t slot = lent._slot
        name = self._names[slot]
        self._forget_lent(lent)
        lent._take_back()
        self._names[slot] = None
        self._views_by_slot[slot] = None
        del self._readers[name]
        return 0

    cdef void _forget_lent(self, CursorReader lent) noexcept:
        self._fan.remove(lent._slot)
        self._lent[lent._slot] = NULL

    cdef void _give_back(self) noexcept:
        cdef size_t slot
        for slot in range(self._lent.size()):
            if self._lent[slot] is not NULL:
                (<CursorReader> self._lent[slot])._take_back()
                self._lent[slot] = NULL

    cdef int _release_lent(self, CursorReader lent) except -1:
        if self._borrower is not NULL and not self._forked():
            raise ConcurrentUse("the reader belongs to a FanInReader that belongs to another one",
                                hint="remove() that FanInReader from the other one first")
        if self._busy and not self._forked():
            if self._busy_thread == PyThread_get_thread_ident():
                self._to_close.append(lent)
                return 0
            if not self._await_rest():
                return 1
        if lent._borrower is <PyObject*> self:
            self._take_out(lent)
        return 1

    cdef int _leave_call(self) except -1:
        CursorReader._leave_call(self)
        while self._to_close:
            self._to_close.pop().close()
        return 0

    cdef void _following(self, bint on):
        if self._fan is not NULL:  # code that ran meanwhile may have closed it
            self._fan.follow(on)

    cdef void _interrupt(self):
        self._fan.interrupt()

    cdef object _wrap(self, RecordView* view):
        cdef Record record = Record.__new__(Record)
        cdef uint16_t slot = self._fan.source()
        cdef Views views = <Views> self._views_by_slot[slot]
        record.seq = view.seq
        record.timestamp_ns = view.timestamp_ns
        record.type_id = view.type_id
        record.flags = view.flags
        record._data = view.payload
        record._size = view.payload_len
        if views is None or not (views.keeper.ref == deref(view.owner)):
            name = self._names[slot]
            views = views_of(view.owner, name)
            # That may have run arbitrary code, which removed the source or closed this reader.
            if self._fan is not NULL and self._names[slot] is name:
                self._views_by_slot[slot] = views
        record._keeper = views
        return record

    # The epoll of a closed fan-in would be empty and never readable: its eventfd is kept with it.
    cdef Descriptor _ready_copy(self):
        cdef Descriptor copy = CursorReader._ready_copy(self)
        cdef Descriptor wake = Descriptor.__new__(Descriptor)
        if self._closed():  # by a signal handler, meanwhile
            return copy
        self._enter_call()
        try:
            wake.fd = os.dup(self._fan.wake_fd())
        finally:
            self._leave_call()
        copy.also = wake
        return copy

    def commit(self):
        """Commit, for each named source, the records that were read through this reader."""
        self._check_still()
        for reader in list(self._readers.values()):
            # In a nested fan-in, only some sources may be named.
            if isinstance(reader, FanInReader) or "commit" in reader.caps:
                reader.commit()

    @property
    def readers(self):
        """The readers by source name."""
        return dict(self._readers)

    @property
    def sources(self):
        """Counts by source name: ``SourceCounts(records, late)``."""
        cdef Counts counts
        self._check_still()
        counted = {}
        for name, reader in list(self._readers.items()):
            if (<CursorReader> reader)._borrower is <PyObject*> self:  # it may be removed meanwhile
                counts = self._fan.counts((<CursorReader> reader)._slot)
                counted[name] = SourceCounts(counts.records, counts.late)
        return counted

    @property
    def late(self):
        """Number of records returned after one with a later timestamp, for the current sources."""
        return sum(counts.late for counts in self.sources.values())

    @property
    def caps(self):
        """Capabilities that all sources share, without `seek_seq`: numbers are per source."""
        shared = None
        for reader in list(self._readers.values()):
            shared = reader.caps if shared is None else shared & reader.caps
        return ((shared or frozenset()) - {"seek_seq"}) | {"source"}

    @property
    def position(self):
        """The positions of the sources: pairs of name and position, sorted by name."""
        self._check_still()
        return tuple((name, reader.position) for name, reader in sorted(self._readers.items()))

    @property
    def last_seq(self):
        """Sequence number of the last record read, in its own log; None before the first."""
        self._check_still()
        cdef optional[uint64_t] seq = self._fan.last_seq()
        return seq.value() if seq.has_value() else None

    @property
    def closed(self):
        """Whether the fan-in is closed."""
        return self._fan is NULL

    def close(self):
        """Release all readers without closing them. A `wait` of another thread ends."""
        cdef CFanIn* fan
        if self._fan is NULL or not self._may_close():
            return
        self._give_back()
        fan = self._fan
        self._fan = NULL
        self._cursor = NULL
        self._readers = {}
        self._views_by_slot = []
        with nogil:
            del fan

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        if self._fan is NULL:
            return "<FanInReader closed>"
        names = ", ".join(self._readers)
        if len(names) > 60:
            names = f"{len(self._readers)} sources"
        if self._moving():
            return f"<FanInReader of {names} in use by another thread>"
        return (f"<FanInReader of {names or 'nothing'}, max_skew={self.max_skew} "
                f"last_seq={self.last_seq}>")
