# The state of a queue seen from outside; part of _native.pyx. `tapewire.queue.status` names the
# fields.

cdef object _maybe(const optional[uint64_t]& value):
    return value.value() if value.has_value() else None


cdef list _texts(vector[string]& lines):
    return [os.fsdecode(line) for line in lines]


cdef class Watch:
    """Reads the state of a queue, incrementally from call to call. One thread at a time."""

    cdef unique_ptr[CQueueWatch] _w
    cdef readonly str path

    def __init__(self, path):
        self.path = os.path.abspath(os.fspath(path))
        self._w = make_unique[CQueueWatch](<string> os.fsencode(self.path))

    def look(self):
        """Return the current state as a dict."""
        cdef CQueueLook look
        cdef CQueueWatch* watch = self._w.get()
        with nogil:
            look = watch.look()
        segments = [(segment.id, os.fsdecode(segment.path), segment.bytes, <bint> segment.sealed,
                     <bint> segment.readable, <bint> segment.has_index,
                     <bint> segment.holds_records.value()
                     if segment.holds_records.has_value() else None,
                     _maybe(segment.first_seq))
                    for segment in look.segments]
        readers = [(reader.name.decode(), os.fsdecode(reader.path), <bint> reader.alive,
                    <bint> reader.state.pinned, reader.state.position.segment,
                    reader.state.position.offset, reader.state.heartbeat_ns,
                    _maybe(reader.lag_records), reader.lag_bytes, reader.lag_segments,
                    reader.lag_ns, _maybe(reader.next_seq))
                   for reader in look.readers]
        owner = None
        if look.lock.owner.has_value():
            owner = (look.lock.owner.value().pid, look.lock.owner.value().start_ticks,
                     look.lock.owner.value().epoch)
        return {
            "version": look.version,
            "segment_bytes": look.geometry.segment_bytes,
            "first_seq": look.geometry.first_seq,
            "sync_errno": look.sync_errno,
            "sparse": <bint> look.sparse,
            "hint": (look.hint.segment, look.hint.offset),
            "end": (look.end.segment, look.end.offset),
            "checkpoint": (look.checkpoint.value().segment, look.checkpoint.value().offset)
                          if look.checkpoint.has_value() else None,
            "last_seq": _maybe(look.last_seq),
            "last_timestamp_ns": _maybe(look.last_timestamp_ns),
            "first_available_seq": _maybe(look.first_available_seq),
            "records": _maybe(look.records),
            "segments": segments,
            "held": <bint> look.lock.held,
            "owner": owner,
            "epoch": look.epoch,
            "heartbeat_ns": look.heartbeat_ns,
            "readers": readers,
            "metrics": {tw_stat_text(i).decode(): look.stats[i] for i in range(look.stats.size())},
            "temporary_files": _texts(look.temporary_files),
            "damaged_copies": _texts(look.damaged_copies),
            "problems": _texts(look.problems),
        }


def indexed_seqs(path, uint32_t segment_id):
    """Return the sequence numbers that the seek index of a segment has entries for.

    They are hints: the list is empty without a valid index, and a record may be gone since.
    """
    cdef string root = os.fsencode(os.path.abspath(os.fspath(path)))
    cdef vector[uint64_t] seqs
    with nogil:
        seqs = c_indexed_seqs(root, segment_id)
    return seqs
