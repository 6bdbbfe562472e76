"""An importer reads a simulated capture like a real one."""

import numpy as np

import tapewire as tw
from tapewire import ingest
from tapewire.book import L2Book
from tapewire.demo.simulated import write_capture
from tapewire.protocol.market import Quote


def whole(log):
    with tw.open_log(log) as reader:
        return reader.read_batch(1 << 20)


def test_the_same_seed_gives_the_same_bytes(tmp):
    one, same, other = (
        write_capture(tmp / name, seconds=2, seed=seed).read_bytes()
        for name, seed in (("a.gz", 1), ("b.gz", 1), ("c.gz", 2))
    )
    assert one == same != other


def test_it_imports_without_a_gap_and_its_book_agrees_with_the_tickers_at_every_update(tmp):
    capture = write_capture(tmp / "capture.gz", seconds=20)
    summary = ingest.run("binance-spot", [capture], tmp / "archive")
    assert (summary.gaps, summary.bad) == (0, {})
    logs = {log.rsplit("/", 1)[1]: tmp / "archive" / log for log in summary.logs}
    tops = L2Book(on_gap="raise").tops(whole(logs["book"]))
    tops = tops[tops["bid_size"] > 0]
    tickers = whole(logs["quotes"])
    at = np.searchsorted(tickers.timestamp_ns, tops["timestamp_ns"]) - 1
    quotes = Quote.decode(tickers)[at]
    assert len(tops) > 150
    for name in ("bid_price", "bid_size", "ask_price", "ask_size"):
        assert (tops[name] == quotes[name]).all(), name
