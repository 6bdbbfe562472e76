# The verbs of readers of every kind; part of _native.pyx.

# A wait is cut into slices of this length, so that Ctrl-C and close() end it soon.
cdef int64_t SLICE_NS = 100_000_000
# How long `async for` reads a backlog before the event loop gets its turn.
cdef int64_t TURN_NS = 1_000_000


cdef int64_t _deadline(int64_t now, timeout) except -1:
    if timeout is None or timeout == inf:
        return (<int64_t> 1) << 62
    if not timeout >= 0:
        raise ValueError(f"timeout must be at least 0: timeout={timeout!r}")
    return now + <int64_t> (min(float(timeout), 1e9) * 1e9)


# Before and behind all times that a log can hold there is nothing else to find.
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
    """A descriptor that is closed with the last reference to it."""

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
    """The verbs that readers of every kind of log have in common."""

    # The collector may take us before the borrower that it takes too.
    def __dealloc__(self):
        if self._borrower is not NULL:
            (<CursorReader> self._borrower)._forget_lent(self)

    cdef bint _forked(self):
        return False  # kinds that must not be used in a forked child say so

    cdef int _check(self) except -1:
        if self._borrower is not NULL:
            raise ConcurrentUse("the reader is inside a FanInReader, which moves it",
                                hint="read from the FanInReader, or take it out by remove()")
        if self._cursor is NULL or self._closing:
            raise ClosedHandle("the reader is closed")
        # In a forked child the thread that was busy does not exist; the call itself will refuse.
        if self._busy and not self._forked():
            raise ConcurrentUse("another thread is inside a call of this reader",
                                hint="give each thread a reader of its own")
        return 0

    # Whether a call that may move this reader is under way: its own, or one of whoever has it, at any depth.
    cdef bint _moving(self) noexcept:
        cdef CursorReader at = self
        while not at._busy:
            if at._borrower is NULL:
                return False
            at = <CursorReader> at._borrower
        return True

    # For what does not move the reader: a lent one may be asked, while its borrower rests.
    cdef int _check_still(self) except -1:
        if self._borrower is NULL:
            return self._check()
        if self._moving() and not self._forked():
            raise ConcurrentUse("another thread is inside a call of the FanInReader that has this reader",
                                hint="ask between its calls")
        return 0

    # While lent, `_cursor` is NULL, so every call that would move this reader comes to `_check`.
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

    # Of a borrower: a reader inside is no more.
    cdef void _forget_lent(self, CursorReader lent) noexcept:
        pass

    # Gives a reader back that is to be closed: 0 when that must wait, for the call it interrupts.
    cdef int _release_lent(self, CursorReader lent) except -1:
        return 1

    # Before this reader is closed. 0: the borrower will close it.
    cdef int _recall(self) except -1:
        if self._borrower is NULL:
            return 1
        # Held: the thread that is inside its call may let go of it while we wait for that.
        cdef CursorReader borrower = <CursorReader> self._borrower
        return borrower._release_lent(self)

    # Around every call that releases the GIL. An error is made by Python code, in which signal handlers
    # run: one that closes this reader must not wait for the very call it interrupts.
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

    # For close(): nobody is inside a call any more. False: it is closed by others, or will be.
    cdef bint _may_close(self) except -1:
        if self._busy and self._busy_thread == PyThread_get_thread_ident() and not self._forked():
            self._close_later = True  # a signal handler inside a call of ours: when that ends
            return False
        if not self._recall():
            return False
        self._closing = True
        self._interrupt()
        return self._await_rest() and self._cursor is not NULL

    # Waits for the end of another thread's call, at most one slice of a wait. False: closed meanwhile.
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

    # Told around what follows a log: the calls that never block then leave to `wait` what they must.
    cdef void _following(self, bint on):
        pass

    def next(self):
        """The next record, or None at the end. Never blocks."""
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
        """Up to `max_records` records as columns; possibly none. Never blocks."""
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
        """Call `fn` for each record until it returns False; how many it saw.

        `fn` is called with the `Record`; or it is compiled code (a numba `cfunc`, a ctypes function
        pointer; see `tapewire.callback`) that is called with the record's fields and the address of
        `data`, any writable buffer, and runs without the GIL. The walk ends where the log does, or
        with `follow` waits there for more, at most `timeout` seconds at a time. It also ends when the
        reader is closed meanwhile.
        """
        cdef uint64_t most = <uint64_t> -1 if max_records is None else _count("max_records", max_records)
        cdef uint64_t seen = 0
        _deadline(0, timeout)
        self._check()
        if self._forked():
            self._next_of(False)  # refuses; an import could wait for a thread that the child has not
        # Whoever holds a compiled callback has loaded ctypes.
        pointer = None
        if "_ctypes" in sys.modules:
            from tapewire.callback import pointer_of
            pointer = pointer_of(fn)
        if pointer is not None:
            return self._for_each_native(pointer, most, data, follow, timeout)
        if not callable(fn):
            raise TypeError(f"fn must be callable: fn={fn!r}")
        if data is not None:
            raise TypeError("data is for compiled callbacks; a Python function has its own")
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

    # A lent reader is not closed: whoever goes on reading it is told that by `_check`.
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
        """True as soon as there is something to read; False after `timeout` seconds without.

        Releases the GIL; Ctrl-C ends it.
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
        """Iterate and wait for more; ends after `timeout` seconds without a record, or when closed."""
        while not self._closed():
            record = self._next_of(True)
            if record is not None:
                yield record
            elif not self.wait(timeout):
                return

    def fileno(self):
        """A descriptor for event loops: readable until `next` or `read_batch` has found the end.

        It is fed by a native thread, which exists from the first call to `close`. It belongs to the
        reader: poll it, read nothing from it, do not close it.
        """
        self._enter_call()
        try:
            with nogil:
                fd = self._cursor.ready_fd()
        finally:
            self._leave_call()
        return fd

    def __aiter__(self):
        """The same as `follow`, inside asyncio: ends when the reader is closed."""
        return self._follow_async()

    # A copy of our own: close(), which makes it readable first, cannot take it from under a loop.
    cdef Descriptor _ready_copy(self):
        cdef Descriptor copy = Descriptor.__new__(Descriptor)
        cdef int fd
        self._enter_call()
        try:
            with nogil:
                fd = self._cursor.ready_fd()
            copy.fd = os.dup(fd)  # before anybody can close it
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
                    await asyncio.sleep(0)  # a long backlog must not starve the other tasks
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
        """To the first record with at least this number; False, and at the end, when there is none."""
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
        """To the first record at which the tape had reached this time; False when it never did."""
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
        """To the earliest record; False when there is none."""
        cdef bint found
        self._enter_call()
        try:
            with nogil:
                found = self._cursor.seek_start()
        finally:
            self._leave_call()
        return found

    def seek_end(self):
        """Behind the last record; False, since nothing is there yet."""
        self._enter_call()
        try:
            with nogil:
                self._cursor.seek_end()
        finally:
            self._leave_call()
        return False

    def skip_damaged(self):
        """Past a damaged place to the next right record; what was skipped (0 bytes: nothing to skip)."""
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
