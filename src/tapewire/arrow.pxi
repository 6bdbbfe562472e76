# Arrow structures in PyCapsules; part of _native.pyx.

cdef void _free_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:  # a consumer that moved it has cleared this
        schema.release(schema)
    PyMem_Free(schema)


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    PyMem_Free(array)


cdef void _free_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = (
        <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream"))
    if stream.release is not NULL:
        stream.release(stream)
    PyMem_Free(stream)


cdef object _schema_capsule(ColumnsRef columns):
    cdef ArrowSchema* schema = <ArrowSchema*> PyMem_Malloc(sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError
    schema.release = NULL
    capsule = PyCapsule_New(schema, "arrow_schema", _free_schema)
    export_schema(columns, schema)
    return capsule
