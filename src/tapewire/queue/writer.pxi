# Writer, its reservations and batches; part of _native.pyx.

def _warn(path, lines):
    """Log the messages of recovery and of the native threads."""
    for line in lines:
        _log.warning("%s: %s", path, (<bytes> line).decode("utf-8", "replace"))


cdef class Writer:
    """The writer of a queue, of which there is one at a time; see `tapewire.open_publisher`."""

    cdef CWriter* _w
    cdef PyThread_type_lock _slow      # held by a call that runs without the GIL
    cdef unsigned long _owner          # the thread that holds it; 0: none
    cdef bint _close_later             # a signal handler called close() inside a call
    cdef int _flushing                 # flush calls under way in other threads
    cdef int _queued                   # threads that wait for _slow
    cdef bint _ending                  # close() has been called
    cdef object _when_full
    cdef PyObject* _reservation       # borrowed: dropping a reservation aborts it
    cdef bint _abort_later             # it was dropped during a call of another thread
    cdef readonly str path
    cdef readonly object config
    cdef set _declared                 # message classes that types.json is known to contain

    def __cinit__(self):
        self._declared = set()
        self._slow = PyThread_allocate_lock()
        if self._slow is NULL:
            raise MemoryError

    def __init__(self, path, config, *, repair=False):
        cdef WriterOptions options
        cdef string root
        if self._w is not NULL:
            raise RuntimeError("already open")
        self.path = os.path.abspath(os.fspath(path))
        self.config = config
        root = os.fsencode(self.path)
        options.segment_bytes = config.segment_bytes or 0
        options.max_bytes = config.max_bytes or 0
        options.max_segments = config.max_segments or 0
        options.preallocate = config.preallocate
        options.require_prealloc = config.require_prealloc
        options.prealloc_wait_ns = seconds_to_ns(config.prealloc_wait)
        options.defer_seal_sync = config.defer_seal_sync
        options.memlock = config.memlock
        options.checksum = config.checksum
        options.index_stride = config.index_stride
        # A limit enables retention too: otherwise a full queue would stay full.
        options.retention.enabled = (config.retention is not None or config.max_bytes is not None
                                     or config.max_segments is not None)
        if config.retention is not None:
            options.retention.reader_ttl_ns = seconds_to_ns(config.retention.reader_ttl)
            options.retention.max_reader_lag_bytes = config.retention.max_reader_lag_bytes
        if config.flush is not None:
            options.flush_records = config.flush.records or 0
            options.flush_interval_ns = seconds_to_ns(config.flush.seconds or 0)
        if config.first_seq is not None:
            options.first_seq = <uint64_t> config.first_seq
        if config.sparse is not None:
            options.sparse = <cbool> <bint> config.sparse
        options.repair = <cbool> <bint> repair
        self._when_full = config.when_full
        with nogil:
            self._w = new CWriter(root, options)
        _warn(self.path, self._w.take_events())

    def __dealloc__(self):
        if self._w is not NULL:
            with nogil:
                del self._w
        if self._slow is not NULL:
            PyThread_free_lock(self._slow)

    cdef int _open(self) except -1:
        if self._w is NULL or self._ending:
            raise ClosedHandle("the writer is closed", path=self.path)
        return 0

    # A slow call takes `_slow`, then disables the fast path, then releases the GIL. So no append of
    # another thread runs at the same time, and the fast path never takes a lock. Signals are
    # handled only while `_slow` is not held: a handler may close the writer.
    cdef int _enter(self, bint to_close=False) except -1:
        if self._w is not NULL and self._w.forked_away():
            self._w.check_usable()  # raises: the parent's locks are never released here
        # Python code constructs the errors, and signal handlers run in it: a handler that appends
        # must not wait for the call that it interrupts.
        if self._owner == PyThread_get_thread_ident():
            raise ConcurrentUse("called by a signal handler inside a call of the same writer",
                                path=self.path)
        # Waiting threads go first, else a thread that rolls all the time would starve them.
        if self._queued or not PyThread_acquire_lock(self._slow, 0):
            self._queued += 1
            try:
                while True:
                    with nogil:
                        nap_50us()
                    PyErr_CheckSignals()
                    if self._ending and not to_close:
                        self._open()
                    if PyThread_acquire_lock(self._slow, 0):
                        break
            finally:
                self._queued -= 1
        if self._w is NULL:
            PyThread_release_lock(self._slow)
            self._open()
        self._owner = PyThread_get_thread_ident()
        self._w.suspend()
        return 0

    cdef int _leave(self) except -1:
        if self._abort_later:
            self._abort_later = False
            self._w.abort_reserved()
        self._w.resume()
        self._owner = 0
        PyThread_release_lock(self._slow)
        if self._close_later:
            self._close_later = False
            self.close()
        return 0

    cdef int _full(self, int64_t* deadline) except -1:
        """The queue is full: raise, or wait briefly for readers and retention."""
        self._open()
        if not isinstance(self._when_full, Block):
            self._w.throw_full()
        if deadline[0] == 0:
            timeout = self._when_full.timeout
            deadline[0] = mono_ns() + seconds_to_ns(4e9 if timeout is None else timeout)
        if mono_ns() >= deadline[0]:
            self._w.throw_full()
        with nogil:
            nap_1ms()
        PyErr_CheckSignals()
        self._open()
        return 0

    cdef int _make_room(self, uint64_t length, int64_t* deadline) except -1:
        cdef bint fits
        # The usual roll: the next segment is ready, and releasing the GIL would cost more than the
        # roll.
        if not self._queued and self._owner == 0 and PyThread_acquire_lock(self._slow, 0):
            self._owner = PyThread_get_thread_ident()
            try:
                self._open()
                if self._w.make_room_at_once(length):
                    return 0
            finally:
                if self._w is NULL:
                    self._owner = 0
                    PyThread_release_lock(self._slow)
                else:
                    self._leave()
        self._enter()
        try:
            with nogil:
                fits = self._w.make_room(length)
        finally:
            self._leave()
        if not fits:
            self._full(deadline)
        return 0

    cdef int _fail(self) except -1:
        """The mapping or the queue is lost: stop writing and raise the reason."""
        self._w.suspend()
        self._w.check_usable()
        return 0

    cdef uint64_t _append(self, uint16_t type_id, uint16_t flags, uint64_t timestamp_ns, object seq,
                          const void* data, uint64_t length,
                          bint stable) except? 0xFFFFFFFFFFFFFFFF:
        cdef uint64_t number
        cdef int64_t deadline = 0
        while True:
            self._open()  # getting the payload's buffer, or making space, may have run Python code
            if seq is None:
                number = self._w.next_seq()
                if number == kNoSeq:
                    self._make_room(length, &deadline)  # raises: no sequence numbers are left
            else:
                number = _number(seq)
                self._open()
                self._w.check_number(number)
            if self._w.try_append_numbered(type_id, flags, number, timestamp_ns, data, length,
                                           stable):
                break
            # Other threads may append meanwhile, so the sequence number is taken again.
            self._make_room(length, &deadline)
        if self._w.lost():
            self._fail()
        return number

    def append(self, type_id, payload, timestamp_ns=None, flags=0, seq=None):
        """Append one record and return its sequence number.

        `payload` is any object with the buffer protocol; its bytes are copied once, into the
        segment. `timestamp_ns` defaults to now; `flags` may use the high 8 bits; `seq` is for
        sparse logs.
        """
        cdef uint16_t c_type = _type_id(type_id)
        cdef uint16_t c_flags = 0 if flags is 0 else _flags(flags)
        cdef uint64_t c_time = (
            <uint64_t> wall_ns() if timestamp_ns is None else _timestamp(timestamp_ns))
        cdef uint64_t number
        if PyBytes_CheckExact(payload):
            # The hot path: an immutable payload, the next sequence number, space in the segment.
            if seq is None and self._w is not NULL and not self._ending:
                number = self._w.next_seq()
                if number != kNoSeq and self._w.try_append(
                        c_type, c_flags, number, c_time, PyBytes_AS_STRING(payload),
                        PyBytes_GET_SIZE(payload), True) and not self._w.lost():
                    return number
                if self._w.lost():
                    self._fail()
            return self._append(c_type, c_flags, c_time, seq, PyBytes_AS_STRING(payload),
                                PyBytes_GET_SIZE(payload), True)
        return self._append_buffer(c_type, c_flags, c_time, seq, payload)

    cdef object _append_buffer(self, uint16_t type_id, uint16_t flags, uint64_t timestamp_ns,
                               object seq, object payload):
        cdef Py_buffer buffer
        _get_buffer(payload, &buffer)
        try:
            return self._append(type_id, flags, timestamp_ns, seq, buffer.buf, buffer.len, False)
        finally:
            PyBuffer_Release(&buffer)

    def append_batch(self, type_id, rows, timestamps_ns=None, flags=0, seqs=None):
        """Append many records at once and return their sequence numbers.

        `rows` is a 2-D or a structured numpy array (one record per row), an Arrow column of binary
        or binary view (any object with the Arrow PyCapsule interface; of a table or a `Batch`, its
        column `payload`), or a list of buffers. `type_id`, `flags` and `timestamps_ns` are one
        value for all rows, or an array; without `timestamps_ns` all rows get the time of the call.
        If there is not enough space for all rows, none is appended. If an I/O error occurs in
        between, its `.appended` is the number of rows appended. The result is a range, or `seqs` if
        they were passed.
        """
        self._open()
        # First: in a forked child a lock that another thread of the parent held is never released,
        # and an import takes a lock.
        if self._w.forked_away():
            self._w.check_usable()
        from tapewire.queue.rows import gather
        if not isinstance(rows, (list, tuple)) and (
                hasattr(rows, "__arrow_c_array__") or hasattr(rows, "__arrow_c_stream__")):
            rows = RowBuffers(rows)
        cdef BatchRows batch
        cdef uint64_t done = 0
        cdef uint64_t first = 0
        cdef int64_t deadline = 0
        cdef const uint64_t[::1] numbers, times, lengths
        cdef const uint16_t[::1] types, user_flags
        cdef vector[const byte*] pointers
        cdef RowBuffers held = None
        self._open()
        columns = gather(rows, type_id, timestamps_ns, flags, seqs)
        batch.count = columns.count
        if batch.count == 0:
            return range(self._w.next_seq(), self._w.next_seq()) if seqs is None else seqs
        if columns.array is not None:
            batch.base = <const byte*> <size_t> columns.address
            batch.stride = columns.stride
            batch.row_bytes = columns.row_bytes
        else:
            held = (columns.buffers if isinstance(columns.buffers, RowBuffers)
                    else RowBuffers(columns.buffers))
            batch.pointers = held.rows.pointers.data()
            batch.lengths = held.rows.lengths.data()
        if columns.type_ids is None:
            batch.type_id = _type_id(columns.type_id)
        else:
            types = columns.type_ids
            batch.type_ids = &types[0]
        if columns.flag_column is None:
            batch.flags = _flags(columns.flags)
        else:
            user_flags = columns.flag_column
            batch.flags_each = &user_flags[0]
        if columns.times is None:
            batch.timestamp_ns = (
                <uint64_t> wall_ns() if timestamps_ns is None else _timestamp(timestamps_ns))
        else:
            times = columns.times
            batch.timestamps_ns = &times[0]
        if columns.seqs is not None:
            numbers = columns.seqs
            batch.seqs = &numbers[0]

        while not self._try_batch(&batch, &first, &done):
            self._full(&deadline)
        return range(first, first + batch.count) if seqs is None else seqs

    cdef bint _try_batch(self, BatchRows* batch, uint64_t* first, uint64_t* done) except -1:
        cdef bint fits
        self._enter()
        try:
            if batch.seqs is not NULL:
                self._w.check_number(batch.seqs[0])
            with nogil:
                fits = self._w.batch_fits(deref(batch))
            if fits:
                first[0] = self._w.next_seq()
                try:
                    with nogil:
                        self._w.append_batch(deref(batch), deref(done))
                except TapewireError as error:
                    error.appended = done[0]
                    raise
        finally:
            self._leave()
        return fits

    def reserve(self, type_id, length, timestamp_ns=None, flags=0, seq=None):
        """Reserve `length` bytes in the segment, to be filled in place.

        Use it in a `with` block, which gets a writable memoryview: leaving the block commits the
        record, an error aborts it. Nothing else can be appended meanwhile. After the block, do not
        write through the view or through any object that was made from it.
        """
        cdef Py_ssize_t size = length
        cdef int64_t deadline = 0
        cdef Reservation slot = Reservation.__new__(Reservation)
        if size < 0:
            raise InvalidOption(f"length must be at least 0: length={length!r}")
        self._open()
        slot._type = _type_id(type_id)
        slot._flags = _flags(flags)
        slot._time = None if timestamp_ns is None else _timestamp(timestamp_ns)
        slot._seq = None if seq is None else _number(seq)
        while not self._try_reserve(size, slot):
            self._full(&deadline)
        return slot

    cdef bint _try_reserve(self, Py_ssize_t size, Reservation slot) except -1:
        cdef bint fits
        self._enter()
        try:
            if slot._seq is not None:
                self._w.check_number(slot._seq)
            with nogil:
                fits = self._w.make_room(size)
            if fits:
                slot._data = self._w.reserve(size)
                slot._map = self._w.current_map()
                slot._size = size
                slot._writer = self
                self._reservation = <PyObject*> slot
        finally:
            self._leave()
        return fits

    @property
    def next_seq(self):
        """The sequence number of the next record."""
        self._open()
        return self._w.next_seq()

    @property
    def sparse(self):
        """Whether sequence numbers may skip values."""
        self._open()
        return <bint> self._w.sparse()

    @property
    def segment_bytes(self):
        """Size of each segment file in bytes."""
        self._open()
        return self._w.segment_bytes()

    @property
    def first_seq(self):
        """Sequence number of the first record that the queue ever had."""
        self._open()
        return self._w.first_seq()

    @property
    def epoch(self):
        """How many writers this queue has had, including this one."""
        self._open()
        return self._w.epoch()

    @property
    def closed(self):
        """Whether the writer is closed."""
        return self._w is NULL

    # A flush runs concurrently with the appends of other threads; only close() waits for it.
    def flush_async(self):
        """Start writing to disk without waiting for the end."""
        self._open()
        self._flushing += 1
        try:
            with nogil:
                self._w.flush_async()
        finally:
            self._flushing -= 1

    def flush_sync(self):
        """Sync everything appended so far to disk: it then survives a loss of power."""
        self._open()
        self._flushing += 1
        try:
            with nogil:
                self._w.flush_sync()
        finally:
            self._flushing -= 1

    def metrics(self):
        """Return the counters of this writer as a dict; see `docs/reference`."""
        self._open()
        values = self._w.stats()
        if not self._w.forked_away():  # a thread of the parent may have held the list's lock
            _warn(self.path, self._w.take_events())
        return {tw_stat_text(i).decode(): values[i] for i in range(kStatCount)}

    @property
    def declared(self):
        """The message classes known to be in `types.json`; maintained by `tapewire.protocol`."""
        self._open()
        self._w.check_usable()  # a declaration writes a file: not in a forked child
        return self._declared

    def append_message(self, message, *, timestamp_ns=None, flags=0, seq=None):
        """Append a message object, which defines its type and bytes; otherwise as `append`.

        The first message of a class is also declared in `types.json` in the queue's directory.
        """
        try:
            append = message.__tapewire_append__
        except AttributeError:
            raise InvalidMessage(f"not a message: {message!r}",
                                 hint="decorate its class with @tapewire.message") from None
        return append(self, timestamp_ns, flags, seq)

    def close(self):
        """Sync, write the tail checkpoint and release the queue. A second call does nothing."""
        cdef CWriter* w = self._w
        if w is NULL:
            return
        if w.forked_away():
            self._w = NULL
            del w
            return
        self._ending = True
        if self._owner == PyThread_get_thread_ident():
            self._close_later = True  # by a signal handler: close when that call ends
            return
        try:
            self._enter(to_close=True)
        except ClosedHandle:
            return  # another thread closed it first
        except BaseException:
            self._ending = False
            raise
        while self._flushing:
            with nogil:
                nap_1ms()
        self._reservation = NULL
        self._w = NULL  # from here on other threads raise ClosedHandle
        try:
            with nogil:
                w.close()
        finally:
            lines = w.take_events()
            with nogil:
                del w
            self._owner = 0
            PyThread_release_lock(self._slow)
            _warn(self.path, lines)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        if self._w is NULL:
            return f"<Writer {self.path!r} closed>"
        return f"<Writer {self.path!r} next_seq={self._w.next_seq()} epoch={self._w.epoch()}>"


@cython.no_gc_clear
cdef class Reservation:
    """Space for one record in the segment; see `Writer.reserve`."""

    cdef Writer _writer
    cdef byte* _data
    cdef Py_ssize_t _size
    cdef MappingRef _map
    cdef uint16_t _type
    cdef uint16_t _flags
    cdef object _time
    cdef object _seq
    cdef bint _done

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        self._still_open()
        PyBuffer_FillInfo(buffer, self, self._data, self._size, 0, flags)

    @property
    def buffer(self):
        """The reserved space as a writable memoryview."""
        self._still_open()
        # Not stored: it references this object, which would then never be dropped, hence never
        # aborted.
        return PyMemoryView_FromObject(self)

    def commit(self, length=None):
        """Commit a record of `length` bytes (default: all) and return its sequence number."""
        cdef uint64_t number
        cdef uint64_t time = <uint64_t> wall_ns() if self._time is None else <uint64_t> self._time
        cdef Py_ssize_t size = self._size if length is None else length
        self._still_open()
        if not 0 <= size <= self._size:
            raise InvalidOption(f"length must be from 0 to {self._size}: length={length!r}")
        self._writer._enter()  # another thread may be inside a slow call, without the GIL
        try:
            self._still_open()
            number = self._writer._w.next_seq() if self._seq is None else self._seq
            self._writer._w.commit_reserved(self._type, self._flags, number, time, size)
            self._finish()
        finally:
            self._writer._leave()
        return number

    def abort(self):
        """Release the space; the bytes written to it are zeroed."""
        self._still_open()
        self._writer._enter()
        try:
            self._still_open()
            self._writer._w.abort_reserved()
            self._finish()
        finally:
            self._writer._leave()

    cdef int _still_open(self) except -1:
        if self._done or self._writer._w is NULL or self._writer._reservation != <PyObject*> self:
            raise ClosedHandle("the reservation was committed or aborted")
        return 0

    cdef void _finish(self) noexcept:
        self._done = True
        self._writer._reservation = NULL

    def __enter__(self):
        return self.buffer

    def __exit__(self, kind, error, trace):
        if self._done:
            return
        try:
            if kind is None:
                self.commit()
        finally:
            # Also if a signal or another error prevented the commit.
            self._give_up()

    cdef void _give_up(self) noexcept:
        """Abort without waiting: now, or when the call of another thread ends."""
        cdef Writer writer = self._writer
        if self._done or writer is None or writer._w is NULL:
            return
        if writer._reservation != <PyObject*> self:
            return
        self._finish()
        if writer._owner == 0 and PyThread_acquire_lock(writer._slow, 0):
            writer._w.abort_reserved()
            PyThread_release_lock(writer._slow)
        else:
            writer._abort_later = True

    def __dealloc__(self):
        self._give_up()

    def __repr__(self):
        return f"<Reservation of {self._size} bytes{', over' if self._done else ''}>"
