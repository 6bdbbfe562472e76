# The methods that readers of all kinds of log share; part of _native.pyx.

# A wait is divided into slices of this length, so that Ctrl-C and close() end it soon.
cdef int64_t SLICE_NS = 100_000_000
# How long `async for` reads a backlog before it yields to the event loop.
cdef int64_t TURN_NS = 1_000_000


cdef int64_t _deadline(int64_t now, timeout) except -1:
    if timeout is None or timeout == inf:
        return (<int64_t> 1) << 62
    if not timeout >= 0:
        raise ValueError(f"timeout must be at least 0: timeout={timeout!r}")
    return now + <int64_t> (min(float(timeout), 1e9) * 1e9)


# Times outside of what a log can contain are clamped: the result of the seek is the same.
cdef int64_t time_to_seek(object ns) except? -1:
    return min(max(ns, -2**63), 2**63 - 1)


cdef int wait_option(object wait, WaitKind* kind, int64_t* ns) except -1:
    if isinstance(wait, BusySpin):
        kind[0] = WaitKind.busy_spin
    elif isinstance(wait, Sleep):
        kind[0] = WaitKind.sleep
        ns[0] = seconds_to_ns(wait.seconds)
    elif isinstance(wait, SpinThenPark):
        kind[0] = WaitKind.spin_then_park
        ns[0] = seconds_to_ns(wait.spin_us / 1e6)
    else:
        raise InvalidOption(f"wait must be BusySpin, SpinThenPark or Sleep: wait={wait!r}")
    return 0


cdef class Descriptor:
    """A file descriptor that is closed with the last reference to this object."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)


def _settle(future):
    if not future.done():
        future.set_result(None)


def _count(name, value):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int: {name}={value!r}")
    if not 0 <= value < 2**64:
        raise InvalidOption(f"{name} must be from 0 to 2**64 - 1: {name}={value!r}")
    return value


cdef class CursorReader:
    """The methods that readers of all kinds of log share."""

    # The garbage collector may finalize this object before its borrower.
    def __dealloc__(self):
        if self._borrower is not NULL:
            (<CursorReader> self._borrower)._forget_lent(self)

    cdef bint _forked(self):
        return False  # overridden by kinds that must not be used in a forked child

    cdef int _check(self) except -1:
        if self._borrower is not NULL:
            raise ConcurrentUse("the reader belongs to a FanInReader, which reads from it",
                                hint="read from the FanInReader, or remove() the reader from it")
        if self._cursor is NULL or self._closing:
            raise ClosedHandle("the reader is closed")
        # In a forked child the busy thread does not exist; the call itself raises.
        if self._busy and not self._forked():
            raise ConcurrentUse("another thread is inside a call of this reader",
                                hint="use one reader per thread")
        return 0

    # Whether a call that may move this reader is running: its own, or one of its borrowers, at any
    # depth.
    cdef bint _moving(self) noexcept:
        cdef CursorReader at = self
        while not at._busy:
            if at._borrower is NULL:
                return False
            at = <CursorReader> at._borrower
        return True

    # For calls that do not move the reader: allowed on a lent reader while its borrower is idle.
    cdef int _check_still(self) except -1:
        if self._borrower is NULL:
            return self._check()
        if self._moving() and not self._forked():
            raise ConcurrentUse("another thread is inside a call of this reader's FanInReader",
                                hint="call this between its calls")
        return 0

    # While lent, `_cursor` is NULL, so every call that would move this reader reaches `_check`.
    cdef int _lend(self, CursorReader borrower) except -1:
        self._check()
        self._lent_cursor = self._cursor
        self._cursor = NULL
        self._borrower = <PyObject*> borrower
        return 0

    cdef void _take_back(self) noexcept:
        self._cursor = self._lent_cursor
        self._lent_cursor = NULL
        self._borrower = NULL

    # Called on a borrower: one of its readers is being destroyed.
    cdef void _forget_lent(self, CursorReader lent) noexcept:
        pass

    # Called on a borrower: returns a reader that is to be closed; 0 if that must wait for a running
    # call.
    cdef int _release_lent(self, CursorReader lent) except -1:
        return 1

    # Called before this reader is closed. 0: the borrower will close it.
    cdef int _recall(self) except -1:
        if self._borrower is NULL:
            return 1
        # A reference: the thread inside its call may drop it while this waits.
        cdef CursorReader borrower = <CursorReader> self._borrower
        return borrower._release_lent(self)

    # Around every call that releases the GIL. Python code constructs the errors, and signal
    # handlers run in it: a handler that closes this reader must not wait for the call that it
    # interrupts.
    cdef int _enter_call(self) except -1:
        self._check()
        self._busy = True
        self._busy_thread = PyThread_get_thread_ident()
        return 0

    cdef int _leave_call(self) except -1:
        self._busy = False
        if self._close_later:
            self._close_later = False
            self.close()
        return 0

    # Ends a wait of another thread soon.
    cdef void _interrupt(self):
        pass

    # For close(): waits until no thread is inside a call. False: another thread closes the reader.
    cdef bint _may_close(self) except -1:
        if self._busy and self._busy_thread == PyThread_get_thread_ident() and not self._forked():
            self._close_later = True  # by a signal handler: close when that call ends
            return False
        if not self._recall():
            return False
        self._closing = True
        self._interrupt()
        return self._await_rest() and self._cursor is not NULL

    # Waits for the end of another thread's call, at most one slice. False: closed meanwhile.
    cdef bint _await_rest(self) except -1:
        while self._busy and not self._forked():
            with nogil:
                nap_1ms()
            PyErr_CheckSignals()
            if self._cursor is NULL:
                return False
        return True

    cdef object _wrap(self, RecordView* view):
        cdef Record record = Record.__new__(Record)
        record.seq = view.seq
        record.timestamp_ns = view.timestamp_ns
        record.type_id = view.type_id
        record.flags = view.flags
        record._data = view.payload
        record._size = view.payload_len
        if self._views is None or not (self._views.keeper.ref == deref(view.owner)):
            self._views = views_of(view.owner, None)
        record._keeper = self._views
        return record

    # Called around a follow: non-blocking calls then leave records to `wait` that must wait.
    cdef void _following(self, bint on):
        pass

    def next(self):
        """Return the next record, or None at the end. Never blocks."""
        cdef RecordView view
        if self._busy or self._cursor is NULL:
            self._check()
        if not self._cursor.next(view):
            return None
        return self._wrap(&view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordView view
        if self._busy or self._cursor is NULL:
            self._check()
        if not self._cursor.next(view):
            raise StopIteration
        return self._wrap(&view)

    def read_batch(self, max_records=65536):
        """Return up to `max_records` records as columns; possibly none. Never blocks."""
        cdef size_t most = _count("max_records", max_records)
        cdef Batch batch = Batch.__new__(Batch)
        cdef BatchColumns* columns = batch._columns.get()
        self._enter_call()
        try:
            with nogil:
                self._cursor.read_batch(deref(columns), most)
        finally:
            self._leave_call()
        batch._to = columns.size()
        return batch

    def for_each(self, fn, max_records=None, *, data=None, follow=False, timeout=None):
        """Call `fn` for each record until it returns False; return the number of calls.

        `fn` gets the `Record`; or it is compiled code (a numba `cfunc`, a ctypes function pointer;
        see `tapewire.callback`), which gets the record's fields and the address of `data`, any
        writable buffer, and runs without the GIL. The loop ends at the end of the log; with
        `follow` it waits there for more records, at most `timeout` seconds at a time. It also ends
        when the reader is closed.
        """
        cdef uint64_t most = (
            <uint64_t> -1 if max_records is None else _count("max_records", max_records))
        cdef uint64_t seen = 0
        _deadline(0, timeout)
        self._check()
        if self._forked():
            self._next_of(False)  # raises: an import could wait for a thread of the parent
        # With a compiled callback, ctypes is already loaded.
        pointer = None
        if "_ctypes" in sys.modules:
            from tapewire.callback import pointer_of
            pointer = pointer_of(fn)
        if pointer is not None:
            return self._for_each_native(pointer, most, data, follow, timeout)
        if not callable(fn):
            raise TypeError(f"fn must be callable: fn={fn!r}")
        if data is not None:
            raise TypeError("data is for compiled callbacks only")
        while seen < most and not self._closed():
            record = self._next_of(follow)
            if record is None:
                if follow and self.wait(timeout):
                    continue
                break
            seen += 1
            if fn(record) is False:
                break
        return seen

    # A lent reader is not closed: `_check` raises if it is read.
    cdef bint _closed(self):
        return self._closing or (self._cursor is NULL and self._borrower is NULL)

    cdef object _next_of(self, bint follow):
        if not follow:
            return self.next()
        if self._busy or self._cursor is NULL:
            self._check()
        self._following(True)
        try:
            return self.next()
        finally:
            self._following(False)

    # `pointer` is kept alive by this call.
    def _for_each_native(self, pointer, uint64_t most, data, follow, timeout):
        from tapewire.callback import address_of
        cdef size_t address = address_of(pointer)
        cdef Walked walked
        cdef uint64_t seen = 0
        cdef Py_buffer buffer
        buffer.buf = NULL
        if data is not None:
            PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            while seen < most:
                self._enter_call()
                self._following(follow)
                try:
                    with nogil:
                        walked = for_each_record(deref(self._cursor), <RecordCallback> address,
                                                 buffer.buf, most - seen, SLICE_NS)
                finally:
                    self._following(False)
                    self._leave_call()
                seen += walked.records
                if walked.refused or self._closed():
                    break
                PyErr_CheckSignals()
                if self._closed():  # by a signal handler
                    break
                if walked.at_end and not (follow and self.wait(timeout)):
                    break
                if self._closed():
                    break
        finally:
            if data is not None:
                PyBuffer_Release(&buffer)
        return seen

    def wait(self, timeout=None):
        """Wait for a record; return False if none came within `timeout` seconds.

        Releases the GIL; Ctrl-C ends the wait.
        """
        cdef int64_t now = mono_ns()
        cdef int64_t deadline = _deadline(now, timeout)
        cdef int64_t left
        cdef WaitOutcome outcome
        self._check()
        while True:
            left = min(deadline - now, SLICE_NS)
            self._enter_call()
            try:
                with nogil:
                    outcome = self._cursor.wait(left if left > 0 else 0)
            finally:
                self._leave_call()
            if outcome == WaitOutcome.ready:
                return True
            if self._closing:
                return False
            PyErr_CheckSignals()
            if self._closed():  # by a signal handler
                return False
            now = mono_ns()
            if now >= deadline:
                return False

    def follow(self, timeout=None):
        """Iterate and wait for more; ends after `timeout` seconds without one, or when closed."""
        while not self._closed():
            record = self._next_of(True)
            if record is not None:
                yield record
            elif not self.wait(timeout):
                return

    def fileno(self):
        """A file descriptor for event loops, readable until `next` or `read_batch` reaches the end.

        A native thread signals it, from the first call of this until `close`. It belongs to the
        reader: poll it, but neither read from it nor close it.
        """
        self._enter_call()
        try:
            with nogil:
                fd = self._cursor.ready_fd()
        finally:
            self._leave_call()
        return fd

    def __aiter__(self):
        """Like `follow`, for asyncio; ends when the reader is closed."""
        return self._follow_async()

    # A duplicate: close(), which makes it readable first, does not invalidate it in an event loop.
    cdef Descriptor _ready_copy(self):
        cdef Descriptor copy = Descriptor.__new__(Descriptor)
        cdef int fd
        self._enter_call()
        try:
            with nogil:
                fd = self._cursor.ready_fd()
            copy.fd = os.dup(fd)  # before it can be closed
        finally:
            self._leave_call()
        return copy

    async def _follow_async(self):
        import asyncio
        cdef Descriptor ready
        cdef int64_t pause_at
        if self._closed():
            return
        loop = asyncio.get_running_loop()
        ready = self._ready_copy()
        pause_at = mono_ns() + TURN_NS
        while not self._closed():
            record = self._next_of(True)
            if record is not None:
                yield record
                if mono_ns() >= pause_at:
                    await asyncio.sleep(0)  # a long backlog must not starve other tasks
                    pause_at = mono_ns() + TURN_NS
                continue
            readable = loop.create_future()
            loop.add_reader(ready.fd, _settle, readable)
            try:
                await readable
            finally:
                loop.remove_reader(ready.fd)
            pause_at = mono_ns() + TURN_NS

    def seek_seq(self, seq):
        """Move to the first record with this sequence number or a higher one; False at the end."""
        cdef uint64_t wanted = _count("seq", seq)
        cdef bint found
        self._enter_call()
        try:
            with nogil:
                found = self._cursor.seek_seq(wanted)
        finally:
            self._leave_call()
        return found

    def seek_time(self, time):
        """Move to the first record with this timestamp or a later one; False if there is none."""
        cdef int64_t wanted = time_to_seek(to_ns(time))
        cdef bint found
        self._enter_call()
        try:
            with nogil:
                found = self._cursor.seek_time(wanted)
        finally:
            self._leave_call()
        return found

    def seek_start(self):
        """Move to the earliest record; False if there is none."""
        cdef bint found
        self._enter_call()
        try:
            with nogil:
                found = self._cursor.seek_start()
        finally:
            self._leave_call()
        return found

    def seek_end(self):
        """Move past the last record; always False, since no record is there yet."""
        self._enter_call()
        try:
            with nogil:
                self._cursor.seek_end()
        finally:
            self._leave_call()
        return False

    def skip_damaged(self):
        """Move past damage to the next valid record; return what was skipped (possibly 0 bytes)."""
        cdef Skipped skipped
        self._enter_call()
        try:
            with nogil:
                skipped = self._cursor.skip_damaged()
        finally:
            self._leave_call()
        first = skipped.first_seq if skipped.numbers_known else None
        last = skipped.last_seq if skipped.numbers_known else None
        return SkippedSpan(skipped.segment, skipped.offset, skipped.bytes, first, last)
