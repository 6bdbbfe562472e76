"""DBN files: written by Databento's own library, or byte by byte if they must be invalid."""

import datetime as dt
import random
import struct
from types import SimpleNamespace

import pytest

DAY = dt.date(2024, 1, 2)
T = 1_704_207_600_000_000_000  # 2024-01-02T15:00:00Z
NANO = 10**9
LAST = 0x80
UNDEFINED_PRICE = 2**63 - 1


def library():
    return pytest.importorskip("databento_dbn", reason="databento-dbn writes the files: install it")


def mapping(name, number, first=DAY, end=None):
    interval = SimpleNamespace(
        start_date=first, end_date=end or first + dt.timedelta(1), symbol=str(number)
    )
    return SimpleNamespace(raw_symbol=name, intervals=[interval])


def header(schema="MBO", mappings=(("ACME", 7),), version=3, **options):
    """The header as the library writes it."""
    dbn = library()
    symbols = [one if not isinstance(one, tuple) else mapping(*one) for one in mappings]
    values = {
        "dataset": "XNAS.ITCH",
        "start": T,
        "stype_in": dbn.SType.RAW_SYMBOL,
        "stype_out": dbn.SType.INSTRUMENT_ID,
        "schema": None if schema is None else getattr(dbn.Schema, schema),
        "symbols": [one.raw_symbol for one in symbols],
        "mappings": symbols,
        "version": version,
        **options,
    }
    return bytes(dbn.Metadata(**values))


def mbo(action, order_id=0, side="N", price=None, size=0, **others):
    """A record of an order as the library writes it; a price in whole dollars."""
    dbn = library()
    values = {"publisher_id": 2, "instrument_id": 7, "ts_event": T, "ts_recv": T, "flags": LAST}
    return bytes(
        dbn.MBOMsg(
            **{**values, **others},
            order_id=order_id,
            price=UNDEFINED_PRICE if price is None else round(price * NANO),
            size=size,
            action=dbn.Action(action),
            side=dbn.Side(side),
        )
    )


def priced(kind, action="T", side="A", price=10, size=1, levels=None, **others):
    """A record of `kind` (TradeMsg, MBP1Msg, MBP10Msg); levels as (bid, size, ask, size)."""
    dbn = library()
    values = {"publisher_id": 2, "instrument_id": 7, "ts_event": T, "ts_recv": T, "flags": LAST}
    if levels is not None:
        pairs = [
            dbn.BidAskPair(round(bid * NANO), round(ask * NANO), bid_size, ask_size, 1, 1)
            for bid, bid_size, ask, ask_size in levels
        ]
        values["levels"] = pairs[0] if kind == "MBP1Msg" else pairs
    return bytes(
        getattr(dbn, kind)(
            **{**values, **others},
            price=UNDEFINED_PRICE if price is None else round(price * NANO),
            size=size,
            action=dbn.Action(action),
            side=dbn.Side(side),
            depth=0,
        )
    )


# From the published layout, for content that the library refuses to write.


def plain_header(symbols=b"", version=3, schema=0, stypes=(1, 0), length=None):
    """A header whose symbols, from the definition of the schema on, are these bytes."""
    fixed = struct.pack("<16sHQQQ", b"XNAS.ITCH", schema, T, 2**64 - 1, 0)
    fixed += struct.pack("<Q", 2**64 - 1) if version == 1 else b""
    fixed += struct.pack("<BB?", *stypes, False)
    fixed += struct.pack("<H", 71) if version != 1 else b""
    body = fixed.ljust(100, b"\0") + (symbols or bytes(20))
    return b"DBN" + struct.pack("<BI", version, len(body) if length is None else length) + body


def plain_mbo(action=b"A", order_id=1, side=b"B", price=10 * NANO, size=1, **others):
    values = {"length": 14, "rtype": 0xA0, "publisher": 2, "instrument": 7, "event": T, "recv": T}
    values |= {"flags": LAST, "sequence": 1, **others}
    return struct.pack(
        "<BBHIQQqIBBccQiI",
        *(values[name] for name in ("length", "rtype", "publisher", "instrument", "event")),
        order_id,
        price,
        size,
        values["flags"],
        0,
        action,
        side,
        values["recv"],
        0,
        values["sequence"],
    )


def random_mbo(rows, seed):
    """Orders of two instruments over midnight, with some bad records."""
    rng = random.Random(seed)
    made = [plain_header()]
    for number in range(1, rows + 1):
        time = 1_704_239_999 * NANO + 2 * NANO * number // rows
        common = {"instrument": rng.choice((7, 8)), "event": time, "recv": time}
        if number % 499 == 0:
            made.append(plain_mbo(b"?", **common))
        elif rng.random() < 0.6:
            price, side = rng.randrange(1, 500) * NANO // 4, rng.choice((b"A", b"B"))
            made.append(plain_mbo(b"A", number, side, price, 100, **common))
        elif rng.random() < 0.5:
            made.append(plain_mbo(b"C", rng.randrange(1, number + 1), b"B", size=1, **common))
        else:
            made.append(plain_mbo(b"T", 0, rng.choice((b"A", b"B", b"N")), size=3, **common))
    return b"".join(made)
