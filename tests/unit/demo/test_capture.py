"""A recorded market as inputs of the exchange."""

import gzip
import json

import pytest

from tapewire.demo.capture import check_capture, recorded
from tapewire.demo.events import MARKET, New, SetLevel, Side
from tapewire.demo.matching import Engine
from tapewire.errors import InvalidOption

SNAPSHOT = {"lastUpdateId": 1, "bids": [["100.00", "1.5"]], "asks": [["100.02", "2"]]}


def depth(bids, asks):
    return {"stream": "x@depth", "data": {"e": "depthUpdate", "b": bids, "a": asks}}


def capture(path, *messages, step=1_000_000_000):
    lines = [f"{10**18 + i * step} {json.dumps(m)}\n" for i, m in enumerate(messages)]
    path.write_text("".join(lines))
    return path


def inputs(path):
    return [what for _, what in recorded(path)]


def test_a_snapshot_becomes_levels_in_cents_and_thousandths(tmp):
    assert inputs(capture(tmp / "c", SNAPSHOT)) == [
        SetLevel(Side.BUY, 10_000, 1_500),
        SetLevel(Side.SELL, 10_002, 2_000),
    ]


def test_removed_levels_come_before_set_ones(tmp):
    """Otherwise a rising bid would trade with an ask that the same message removes."""
    update = depth([["100.02", "1"]], [["100.02", "0"]])
    assert inputs(capture(tmp / "c", SNAPSHOT, update))[2:] == [
        SetLevel(Side.SELL, 10_002, 0),
        SetLevel(Side.BUY, 10_002, 1_000),
    ]


def test_levels_far_from_the_middle_are_left_out(tmp):
    update = depth([["50.00", "1"], ["99.99", "1"]], [["51.00", "0"]])
    assert inputs(capture(tmp / "c", SNAPSHOT, update))[2:] == [SetLevel(Side.BUY, 9_999, 1_000)]


def test_a_level_that_the_market_left_is_removed_when_it_ends(tmp):
    moved = {"data": {"e": "bookTicker", "b": "120.00", "B": "1", "a": "120.02", "A": "1"}}
    update = depth([["100.00", "0"]], [])
    assert inputs(capture(tmp / "c", SNAPSHOT, moved, update))[2:] == [
        SetLevel(Side.BUY, 10_000, 0)
    ]


def test_a_trade_takes_its_quantity(tmp):
    trade = {"data": {"e": "trade", "p": "100.02", "q": "0.5", "m": False}}
    path = capture(tmp / "c", SNAPSHOT, trade)
    assert inputs(path)[-1] == New(MARKET, 1, Side.BUY, 10_002, 500, immediate=True)
    engine = Engine()
    for what in inputs(path):
        engine.apply(what)
    assert (2, 10_002, 1_500) in engine.levels()


def test_times_are_seconds_after_the_first_line(tmp):
    path = capture(tmp / "c", SNAPSHOT, depth([["99.99", "1"]], []), step=250_000_000)
    assert [seconds for seconds, _ in recorded(path)] == [0, 0, 0.25]


def test_a_compressed_capture_is_read(tmp):
    plain = capture(tmp / "c", SNAPSHOT)
    (tmp / "c.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert inputs(tmp / "c.gz") == inputs(plain)


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "12 {",
        "12 []",
        '12 {"lastUpdateId": 1}',
        '12 {"lastUpdateId": 1, "bids": [], "asks": []}',
        '12 {"e": "trade", "p": "x", "q": "1", "m": true}',
        'noon {"lastUpdateId": 1}',
        '12 {"e": "depthUpdate", "b": [["1"]], "a": []}',
        '12 {"e": "depthUpdate", "b": 7, "a": []}',
        '12 {"e": "trade", "p": "1e999", "q": "1", "m": true}',
        '12 {"e": "trade", "p": "nan", "q": "1", "m": true}',
        "12 " + "[" * 100_000,
        "\udcff\udcfe {}",
    ],
)
def test_an_invalid_line_is_refused_by_its_number(tmp, line):
    path = capture(tmp / "c", SNAPSHOT)
    path.write_bytes(path.read_bytes() + line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(InvalidOption, match="line=2"):
        inputs(path)


def test_a_capture_without_a_level_or_a_trade_is_refused(tmp):
    with pytest.raises(InvalidOption, match="neither a level nor a trade"):
        check_capture(
            capture(tmp / "c", {"e": "bookTicker", "b": "1", "B": "1", "a": "2", "A": "1"})
        )


def test_a_damaged_gzip_file_is_refused(tmp):
    whole = gzip.compress(capture(tmp / "c", *[SNAPSHOT] * 50).read_bytes())
    for name, damaged in (
        ("cut", whole[:40]),
        ("none", b"hello"),
        ("bits", whole[:30] + whole[20:]),
    ):
        path = tmp / f"{name}.gz"
        path.write_bytes(damaged)
        with pytest.raises(InvalidOption, match="not a gzip file"):
            inputs(path)
