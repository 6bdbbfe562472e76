"""Importers of captures with arbitrary bytes: each line is a record, skipped, or a bad row."""

import json
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapewire.ingest import Report, SourceFile, importer_class
from tapewire.ingest.zstd import ZSTD_MAGIC

COMPRESSED = (b"\x1f\x8b", ZSTD_MAGIC, b"PK\x03\x04", b"PK\x05\x06")
FORMATS = ("binance-spot", "binance-usdm", "okx", "bitget", "coinbase")
KEYS = re.findall(
    r"\w+",
    """
    stream data e s U u pu b a B A T E t p q m lastUpdateId bids asks symbol arg channel instId
    instType action checksum ts px sz side tradeId bidPx bidSz askPx askSz type product_id changes
    time price size trade_id best_bid best_ask event
    """,
)
WORDS = re.findall(
    r"\S+",
    """
    depthUpdate trade aggTrade bookTicker books trades tickers snapshot update sp mc buy sell
    l2update match ticker AAA 1.5 0 -1 1e400 NaN 2021-04-17T16:43:37Z 9999-12-31T23:59:59+99:99
    """,
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=8)
    ),
    max_leaves=20,
)
STAMPS = st.sampled_from([b"1700006400000000000 ", b"1700006400.5: ", b"", b"x ", b"-1: "])
LINES = st.one_of(
    st.binary(max_size=80),
    st.tuples(STAMPS, VALUES).map(lambda pair: pair[0] + json.dumps(pair[1]).encode()),
    st.tuples(STAMPS, st.binary(max_size=60)).map(b"".join),
)
SEEDS = (
    '{"data":{"e":"depthUpdate","E":7,"T":7,"s":"AAA","U":5,"u":9,"pu":4,"b":[["1","2"]],"a":[]}}',
    '{"data":{"e":"trade","s":"AAA","t":1,"T":1,"p":"1","q":"1","m":true}}',
    '{"lastUpdateId":9,"symbol":"AAA","bids":[["1","2"]],"asks":[]}',
    '{"arg":{"channel":"books","instId":"A","instType":"sp"},"action":"snapshot",'
    '"data":[{"asks":[["1","2","0","1"]],"bids":[],"ts":"5","checksum":-1}]}',
    '{"arg":{"channel":"trade","instId":"A","instType":"mc"},"action":"update",'
    '"data":[["5","1","2","buy"]]}',
    '{"type":"l2update","product_id":"A","changes":[["buy","1","2"]],"time":"2021-04-17T16:43:37Z"}',
    '{"type":"snapshot","product_id":"A","bids":[["1","2"]],"asks":[]}',
)


@st.composite
def mutants(draw):
    """A valid message with one value or some bytes changed."""
    document = json.loads(draw(st.sampled_from(SEEDS)))
    at = document
    while isinstance(at, dict | list) and at:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
            at[key] = draw(VALUES)
            break
        at = at[key]
    text = bytearray(json.dumps(document).encode())
    if draw(st.booleans()):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return draw(STAMPS) + bytes(text)


@pytest.mark.parametrize("format", FORMATS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(st.one_of(LINES, mutants()), max_size=6))
def test_arbitrary_lines_never_raise_and_are_all_accounted_for(tmp, format, lines):
    lines = [line.replace(b"\n", b" ") for line in lines]
    # Input that begins like a compressed file is read as one, and an invalid one is an error.
    assume(not lines or not lines[0].startswith(COMPRESSED))
    (tmp / "capture").write_bytes(b"".join(line + b"\n" for line in lines))
    cls = importer_class(format)
    importer = cls(cls.Options())
    with Report(tmp, lambda gap: None, lambda instrument: instrument) as report:
        for chunk in importer.chunks([SourceFile(tmp / "capture")], report):
            assert len(chunk) == len(chunk.payloads) > 0
            assert all(0 <= time < 2**63 for time in chunk.timestamps_ns)
    assert report.rows == len(lines)
    kept = [json.loads(row) for row in report.rejected.read_text().splitlines()]
    assert len(kept) == sum(report.bad_rows.values()) <= len(lines)
