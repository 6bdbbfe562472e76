"""Made-up queue statuses for watchers: no files, and a clock that the test sets."""

import dataclasses
import os

from tapewire.queue.status import QueueStatus, ReaderStatus, WriterState


def reader_status(name="r", **changes):
    made = ReaderStatus(
        name=name,
        path=f"readers/{name}.meta",
        alive=True,
        pinned=False,
        segment=0,
        offset=64,
        heartbeat_ns=1,
        heartbeat_age=0.0,
        lag_records=0,
        lag_bytes=0,
        lag_segments=0,
        lag_seconds=0.0,
        next_seq=0,
    )
    return dataclasses.replace(made, **changes)


def queue_status(**changes):
    writer = WriterState(alive=True, pid=4711, epoch=1, heartbeat_ns=1, heartbeat_age=0.0)
    for name in {field.name for field in dataclasses.fields(WriterState)} & changes.keys():
        writer = dataclasses.replace(writer, **{name: changes.pop(name)})
    values = dict.fromkeys(field.name for field in dataclasses.fields(QueueStatus)) | {
        "path": "",
        "version": 3,
        "segment_bytes": 1 << 20,
        "first_seq": 0,
        "sparse": False,
        "current_segment": 0,
        "write_offset": 64,
        "sync_errno": 0,
        "end_segment": 0,
        "end_offset": 64,
        "last_seq": 0,
        "last_timestamp_ns": 0,
        "first_available_seq": 0,
        "records": 1,
        "segments": (),
        "disk_bytes": 1 << 20,
        "writer": writer,
        "readers": (),
        "ready": False,
        "problems": (),
    }
    return QueueStatus(**values | changes)


class MadeUpBus:
    """`bus["name"] = queue_status(...)`, or an exception; `bus.clock` is what the watch reads."""

    def __init__(self, root):
        self._root = str(root)
        self._queues = {}
        self.clock = 100.0

    def __setitem__(self, name, status):
        self._queues[os.path.join(self._root, name)] = status

    def __delitem__(self, name):
        del self._queues[os.path.join(self._root, name)]

    def watch(self, **options):
        """A `Watch` of this bus."""
        from tapewire.monitor import Watch

        return Watch(
            self._root,
            _find=lambda root, on_error: sorted(self._queues),
            _watch=lambda path: _Looker(self._queues, path),
            _clock=lambda: self.clock,
            **options,
        )


class _Looker:
    def __init__(self, queues, path):
        self._queues = queues
        self._path = path

    def look(self):
        found = self._queues[self._path]
        if isinstance(found, Exception):
            raise found
        return found
