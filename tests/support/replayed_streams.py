"""Streaming queries over replayed views: options, archives to read, and their rows."""

import contextlib

import tapewire as tw
from tapewire import bus
from tests.support.feature_tapes import TRADE_TICK, TapeWriter, instrument

ONE = instrument()
FEATURES = "mid,spread_bps,imbalance3,ofi,trade_price,trade_flow_5s,vwap_300ms,volatility_1s"
VIEWS = [(view, sample) for view in ("book", "features") for sample in ("event", "trade", "100ms")]


def options_of(view, sample, root, **more):
    options = {"view": view, "sample": sample, **more}
    options |= {"levels": 3} if view == "book" else {"features": FEATURES}
    return options


def same(found, expected):
    assert found.schema == expected.schema
    assert found.num_rows == expected.num_rows
    assert found.equals(expected), "rows differ"


def write_days(root, tapes, at_end_of_day=lambda: None):
    """An archive of one instrument: a book and trades of each day."""
    layout = bus.ArchiveLayout(root)
    encode = TapeWriter(root, ONE)
    for day, tape in tapes.items() if isinstance(tapes, dict) else enumerate(tapes, 1):
        with contextlib.ExitStack() as stack:
            writers = {
                stream: stack.enter_context(
                    tw.open_publisher(
                        layout.log(ONE.venue, ONE.symbol, f"2026-01-{day:02}", stream),
                        segment_bytes=1 << 16,
                    )
                )
                for stream in ("book", "trades")
            }
            for event in tape:
                type_id, payload = encode.payload(event)
                stream = "trades" if type_id == TRADE_TICK else "book"
                writers[stream].append(type_id, payload, timestamp_ns=event.time)
            at_end_of_day()
