"""Several small queues, for fan-ins."""

import contextlib

import tapewire as tw
from tapewire import bus


class Sources:
    """Queues by name, with their writers and readers."""

    def __init__(self, directory):
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self.writers = {}

    def path(self, name):
        return self._directory / name

    def write(self, name, *times, payload=b""):
        """Append a record for each time to the queue with this name, creating it if needed."""
        if name not in self.writers:
            self.writers[name] = self._stack.enter_context(
                tw.open_publisher(self.path(name), segment_bytes=8192, preallocate=False)
            )
        for time in times:
            self.writers[name].append(1, payload, timestamp_ns=time)
        return self

    def stop(self, name):
        self.writers.pop(name).close()

    def readers(self, *names):
        return {name: tw.open_log(self.path(name)) for name in names or self.writers}

    def fan(self, *names, **options):
        return self._stack.enter_context(bus.FanInReader(self.readers(*names), **options))

    def close(self):
        self._stack.close()


def given(fan):
    """Return what a fan-in returns now: (source, seq) of each record."""
    return [(record.source, record.seq) for record in fan]
