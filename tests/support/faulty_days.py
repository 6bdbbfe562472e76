"""Archives with and without planted faults, which `quality` must find."""

import tapewire as tw
from tapewire.bus import ArchiveLayout
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import l2_diff
from tests.support.book_tapes import BTC, START_NS, L2Feed, trade

MS = 10**6


class Day:
    """One symbol's day to be written record by record, a millisecond apart, 3 ms on their way."""

    def __init__(self, root, date="2023-11-14", start_ns=START_NS, feed=None):
        self.feed = feed or L2Feed(BTC, seed=3)
        self.instrument = self.feed.instrument
        root.mkdir(parents=True, exist_ok=True)
        known = Instruments.load(root)
        if self.instrument not in known:
            known.add(self.instrument)
        known.save(root)
        self._layout, self._date = ArchiveLayout(root), date
        self._writers, self.paths = {}, {}
        self.time = start_ns

    def append(self, stream, type_id, payload, time):
        if stream not in self._writers:
            one = self.instrument
            path = self._layout.log(one.venue, one.symbol, self._date, stream)
            self.paths[stream] = str(path)
            self._writers[stream] = tw.open_publisher(path, segment_bytes=1 << 20)
        return self._writers[stream].append(type_id, payload, timestamp_ns=time)

    def event(self, payload, *, way=3 * MS, stream="book", after=MS):
        """A book event; its exchange time is put into the header, where the encoders leave 0."""
        self.time += after
        changed = bytearray(payload)
        changed[24:32] = self.time.to_bytes(8, "little")
        changed[32:40] = (self.time - way).to_bytes(8, "little")
        self.append(stream, 0x1000, bytes(changed), self.time)
        return self.time

    def snapshot(self, **options):
        return self.event(self.feed.snapshot(self.time), **options)

    def diffs(self, count, **options):
        for _ in range(count):
            self.event(self.feed.diff(self.time), **options)

    def trade(self, price, size, *, way=3 * MS, number=1):
        payload = trade(self.instrument, self.time - way, price, size, number)
        self.append("trades", 0x1004, payload, self.time)

    def lose(self, count):
        for _ in range(count):
            self.feed.diff(self.time)

    def own_diff(self, bids=(), asks=(), **options):
        self.feed.update += 1
        ids = {"first": self.feed.update, "last": self.feed.update, "prev": self.feed.update - 1}
        for side, levels in ((self.feed.bids, bids), (self.feed.asks, asks)):
            for price, size in levels:
                side.pop(price, None)
                if size:
                    side[price] = size
        payload = l2_diff(self.instrument, self.time, bids=list(bids), asks=list(asks), **ids)
        return self.event(payload, **options)

    def close(self):
        for writer in self._writers.values():
            writer.close()
