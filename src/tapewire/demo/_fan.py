"""Stand-in until FanInReader arrives."""

import select


class FanInReader:
    def __init__(self, readers, max_skew=None):
        self.readers = dict(readers)
        self.poller = select.poll()
        self.source = None
        for r in readers.values():
            self.poller.register(r.fileno(), select.POLLIN)

    def add(self, name, r):
        self.readers[name] = r
        self.poller.register(r.fileno(), select.POLLIN)

    def remove(self, name):
        r = self.readers.pop(name)
        self.poller.unregister(r.fileno())
        return r

    @property
    def sources(self):
        return self.readers

    def next(self):
        for name, r in self.readers.items():
            rec = r.next()
            if rec is not None:
                self.source = name
                return rec
        return None

    def wait(self, timeout):
        self.poller.poll(timeout * 1000)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        pass

    def close(self):
        pass
