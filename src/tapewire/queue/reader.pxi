# Reader; part of _native.pyx.

cdef class Reader(CursorReader):
    """A reader of a queue; see `tapewire.open_subscriber` and `tapewire.open_log`."""

    cdef CReader* _r
    cdef readonly str path
    cdef readonly object name
    cdef readonly object caps
    cdef readonly str kind
    cdef bint _forget_later   # the argument of a close() inside a call

    def __init__(self, path, name, start, wait, types, pinned):
        cdef ReaderOptions options
        cdef string root
        cdef unique_ptr[TypeFilter] wanted
        if self._r is not NULL:
            raise RuntimeError("already open")
        self.path = os.path.abspath(os.fspath(path))
        self.name = name
        self.kind = "queue"
        root = os.fsencode(self.path)
        if name is not None:
            options.name = name.encode("utf-8", "backslashreplace")  # refused by the native check
        options.pinned = pinned
        wait_option(wait, &options.wait, &options.wait_ns)
        if types is not None:
            wanted = make_unique[TypeFilter]()
            for type_id in types:
                deref(wanted).want(_type_id(type_id))
        with nogil:
            self._r = new CReader(root, options)
        try:
            self._begin(start)
            with nogil:
                self._r.register_position()
        except BaseException:
            with nogil:
                del self._r
            self._r = NULL
            raise
        if types is not None:
            self._r.filter(move(wanted))
        self._cursor = tw_cursor(self._r)
        caps = {"seq", "timestamp_ns", "type_id", "flags", "types", "seek_seq", "seek_time", "wait",
                "skip_damaged", "live"}
        if name is not None:
            caps.add("commit")
        self.caps = frozenset(caps)

    def _begin(self, start):
        cdef uint64_t seq
        cdef int64_t time
        cdef Cursor* cursor = tw_cursor(self._r)
        if isinstance(start, Seq):
            seq = start.seq
            with nogil:
                cursor.seek_seq(seq)
        elif isinstance(start, Time):
            time = time_to_seek(start.timestamp_ns)
            with nogil:
                cursor.seek_time(time)
        elif start == "latest":
            with nogil:
                cursor.seek_end()
        elif start == "resume":
            with nogil:
                self._r.resume_committed()
        elif start != "earliest":
            raise InvalidOption(
                f'start must be "resume", "earliest", "latest", Seq(n) or Time(t): start={start!r}')

    def __dealloc__(self):
        self._cursor = NULL
        if self._r is not NULL:
            with nogil:
                del self._r

    cdef bint _forked(self):
        return self._r.forked_away()

    cdef int _open(self) except -1:
        if self._r is NULL or self._closing:
            raise ClosedHandle("the reader is closed", path=self.path)
        return 0

    def commit(self):
        """Commit the position after the last record read; `start="resume"` continues there."""
        self._check_still()
        self._r.commit()

    @property
    def position(self):
        """Where the next record is read: ``Position(segment, offset)``."""
        self._check_still()
        cdef CPosition at = self._r.position()
        return Position(at.segment, at.offset)

    @property
    def committed(self):
        """The committed position; None without one or if the reader is anonymous."""
        self._check_still()
        self._r.check_usable()
        cdef optional[CPosition] at = self._r.committed()
        return Position(at.value().segment, at.value().offset) if at.has_value() else None

    @property
    def last_seq(self):
        """Sequence number of the last record read, or None."""
        self._check_still()
        cdef optional[uint64_t] seq = self._r.last_seq()
        return seq.value() if seq.has_value() else None

    @property
    def segment_bytes(self):
        """Size of each segment file in bytes."""
        self._open()
        return self._r.segment_bytes()

    @property
    def sparse(self):
        """Whether sequence numbers may skip values."""
        self._check_still()
        return <bint> self._r.sparse()

    @property
    def closed(self):
        """Whether the reader is closed."""
        return self._r is NULL

    def writer_status(self, ttl=1.0):
        """Return the state of the queue's writer.

        It is a ``WriterStatus(alive, pid, epoch, heartbeat_age)``; a writer without a heartbeat for
        `ttl` seconds is not alive.
        """
        cdef int64_t ttl_ns = seconds_to_ns(ttl)
        cdef CWriterStatus status
        if self._borrower is not NULL:
            self._check_still()  # and keeps the GIL, which is needed to move the reader meanwhile
            status = self._r.writer_status(ttl_ns)
        else:
            self._enter_call()
            try:
                with nogil:
                    status = self._r.writer_status(ttl_ns)
            finally:
                self._leave_call()
        return WriterStatus(<bint> status.alive, status.pid or None, status.epoch,
                            status.heartbeat_age_ns / 1e9)

    def detect_disconnect(self, ttl=1.0):
        """Return why the writer should be considered gone, or None."""
        cdef int64_t ttl_ns = seconds_to_ns(ttl)
        cdef Disconnect reason
        if self._borrower is not NULL:
            self._check_still()
            reason = self._r.detect_disconnect(ttl_ns)
        else:
            self._enter_call()
            try:
                with nogil:
                    reason = self._r.detect_disconnect(ttl_ns)
            finally:
                self._leave_call()
        if reason == Disconnect.none:
            return None
        if reason == Disconnect.lock_lost:
            return DisconnectReason.LOCK_LOST
        if reason == Disconnect.heartbeat_stale:
            return DisconnectReason.HEARTBEAT_STALE
        return DisconnectReason.SEGMENT_MISSING

    cdef void _interrupt(self):
        self._r.interrupt()

    def close(self, forget=False):
        """Close the reader; `forget=True` also removes its meta file. A second call does nothing.

        A `wait` or `follow` of another thread on this reader ends.
        """
        cdef CReader* r
        cdef bint c_forget = forget
        if self._r is NULL:
            return
        self._forget_later = self._forget_later or c_forget
        if not self._may_close():
            return
        c_forget = self._forget_later
        r = self._r
        self._r = NULL
        self._cursor = NULL
        self._views = None
        try:
            with nogil:
                r.close(c_forget)
        finally:
            with nogil:
                del r

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        if self._r is NULL:
            return f"<Reader {self.path!r} closed>"
        if self._moving():
            return f"<Reader {self.path!r} in use by another thread>"
        who = f" name={self.name!r}" if self.name is not None else ""
        return (f"<Reader {self.path!r}{who} position={tuple(self.position)} "
                f"last_seq={self.last_seq}>")
