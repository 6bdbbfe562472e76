# Cleaning up after killed processes; part of _native.pyx.

cdef class Upkeep:
    """Holds the writer's lock of a queue that has no writer; use it in a `with` block."""

    cdef CUpkeep* _u
    cdef readonly str path

    def __init__(self, path):
        cdef string root
        self.path = os.path.abspath(os.fspath(path))
        root = os.fsencode(self.path)
        if self._u is NULL:
            with nogil:
                self._u = new CUpkeep(root)

    def __dealloc__(self):
        del self._u

    cdef int _open(self) except -1:
        if self._u is NULL:
            raise ClosedHandle("the upkeep is closed", path=self.path)
        return 0

    def clear_owner(self):
        """Remove the name of a killed writer from writer.lock."""
        self._open()
        self._u.clear_owner()

    def remove_temporary_files(self):
        """Remove the unfinished files of a killed writer and return their paths."""
        self._open()
        cdef vector[string] removed = self._u.remove_temporary_files()
        return _texts(removed)

    def close(self):
        """Release the lock. A second call does nothing."""
        cdef CUpkeep* u = self._u
        self._u = NULL
        del u

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        return f"<Upkeep {self.path!r}{' closed' if self._u is NULL else ''}>"


def remove_reader(path, str name, heartbeat_ns=None):
    """Remove a reader that is not running; False if its heartbeat is not `heartbeat_ns`."""
    cdef optional[uint64_t] expected
    cdef string root = os.fsencode(os.path.abspath(os.fspath(path)))
    cdef string c_name = name.encode()
    cdef bint removed
    if heartbeat_ns is not None:
        expected = <uint64_t> heartbeat_ns
    with nogil:
        removed = c_remove_reader(root, c_name, expected)
    return removed


def wrong_indexes(path):
    """Return a line for each seek index that does not match its segment."""
    cdef string root = os.fsencode(os.path.abspath(os.fspath(path)))
    cdef vector[string] lines
    with nogil:
        lines = c_wrong_indexes(root)
    return _texts(lines)
