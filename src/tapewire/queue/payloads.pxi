# Pointers to payloads, and the objects that keep them valid; part of _native.pyx.

cdef int _get_buffer(object payload, Py_buffer* buffer) except -1:
    """Get the bytes of a payload as one span; a strided view is copied first."""
    if not PyObject_CheckBuffer(payload):
        raise TypeError(
            f"payload must be bytes or have the buffer protocol: {type(payload).__name__}")
    try:
        PyObject_GetBuffer(payload, buffer, PyBUF_SIMPLE)
    except (BufferError, ValueError):
        PyObject_GetBuffer(memoryview(payload).tobytes(), buffer, PyBUF_SIMPLE)
    return 0


cdef class RowBuffers:
    """Pointers to many payloads, and the objects that keep them valid until they are appended."""

    cdef vector[Py_buffer] buffers
    cdef vector[ArrowArray] arrays    # chunks of a stream, released here
    cdef ArrowSchema schema
    cdef ArrowRows rows
    cdef object source

    def __init__(self, rows):
        self.source = rows
        if hasattr(rows, "__arrow_c_array__"):
            self._take_array(rows.__arrow_c_array__())
        elif hasattr(rows, "__arrow_c_stream__"):
            self._take_stream(rows.__arrow_c_stream__())
        else:
            self._take_objects(rows)

    def __len__(self):
        return self.rows.lengths.size()

    cdef int _take_objects(self, object rows) except -1:
        cdef Py_buffer buffer
        rows = tuple(rows)  # a copy: another thread may change the caller's list
        self.source = rows
        for row in rows:
            if PyBytes_CheckExact(row):
                # The tuple keeps it alive; no export is needed.
                self.rows.pointers.push_back(<const byte*> PyBytes_AS_STRING(row))
                self.rows.lengths.push_back(PyBytes_GET_SIZE(row))
                continue
            _get_buffer(row, &buffer)
            self.buffers.push_back(buffer)
            self.rows.pointers.push_back(<const byte*> buffer.buf)
            self.rows.lengths.push_back(buffer.len)
        return 0

    cdef int _take_array(self, object capsules) except -1:
        self.source = capsules  # they own the array
        schema, array = capsules
        self.rows.add(deref(<ArrowSchema*> PyCapsule_GetPointer(schema, "arrow_schema")),
                      deref(<ArrowArray*> PyCapsule_GetPointer(array, "arrow_array")))
        return 0

    cdef int _take_stream(self, object capsule) except -1:
        cdef ArrowArrayStream* stream = (
            <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream"))
        cdef ArrowArray chunk
        cdef size_t i
        self.source = capsule
        if stream.get_schema(stream, &self.schema) != 0:
            self._fail(stream)
        while True:
            if stream.get_next(stream, &chunk) != 0:
                self._fail(stream)
            if chunk.release is NULL:
                break
            self.arrays.push_back(chunk)
        for i in range(self.arrays.size()):
            self.rows.add(self.schema, self.arrays[i])
        return 0

    cdef int _fail(self, ArrowArrayStream* stream) except -1:
        cdef const char* text = stream.get_last_error(stream)
        raise InvalidOption(
            "the Arrow stream failed: "
            + ("no reason given" if text is NULL else (<bytes> text).decode(errors="replace")))

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.buffers.size()):
            PyBuffer_Release(&self.buffers[i])
        for i in range(self.arrays.size()):
            self.arrays[i].release(&self.arrays[i])
        if self.schema.release is not NULL:
            self.schema.release(&self.schema)
