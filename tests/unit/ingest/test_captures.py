"""Single lines of a capture become records, skipped messages or bad rows."""

import json

import pytest

import tapewire as tw
from tests.support.captures import MIDNIGHT_NS, capture_line, without_losses

AT = f"{MIDNIGHT_NS} ".encode()
DAY = "2023-11-15"


def event_of(tmp, venue, symbol, stream, day=DAY):
    with tw.open_log(tmp / "archive" / "v1" / venue / symbol / day / stream) as log:
        record = log.next()
        return record.timestamp_ns, record.decode()


def depth(**changes):
    data = {"e": "depthUpdate", "E": 7, "s": "AAA", "U": 5, "u": 9, "b": [["1.5", "2"]], "a": []}
    return capture_line(MIDNIGHT_NS, {"stream": "x", "data": data | changes})


def test_a_spot_diff_follows_the_id_before_its_first(import_lines, tmp):
    import_lines("binance-spot", [depth()])
    time_ns, event = event_of(tmp, "binance_spot", "AAA", "book")
    assert time_ns == MIDNIGHT_NS
    assert (event.update_first, event.update_last, event.update_prev) == (5, 9, 4)
    assert event.exchange_ts_ns == 7_000_000
    assert event.bids.tolist() == [(150_000_000, 200_000_000)]


def test_a_futures_diff_follows_the_id_it_names(import_lines, tmp):
    import_lines("binance-usdm", [depth(pu=2, T=8)])
    _, event = event_of(tmp, "binance_usdm", "AAA", "book")
    assert (event.update_prev, event.exchange_ts_ns) == (2, 8_000_000)


@pytest.mark.parametrize(("format", "extra"), [("binance-spot", {"pu": 2}), ("binance-usdm", {})])
def test_a_diff_of_the_other_market_is_a_bad_row(import_lines, format, extra):
    summary, _ = import_lines(format, [depth(**extra)], check_market=False)
    assert summary.bad == {"another market": 1}


BITGET = {"instType": "sp", "channel": "books", "instId": "AAA"}
OF_OTHER_MARKETS = [
    ("binance-spot", depth(pu=2), "binance-usdm"),
    ("binance-usdm", depth(), "binance-spot"),
    ("binance-usdm", depth(pu=2, ps="AA"), "no importer supports that market"),
    ("binance-spot", AT + b'{"lastUpdateId":9,"E":1,"bids":[],"asks":[]}', "binance-usdm"),
    ("okx", b"1.5: " + json.dumps({"arg": BITGET, "data": []}).encode(), "bitget"),
    ("bitget", b'1.5: {"arg":{"channel":"books","instId":"AAA"},"data":[]}', "okx"),
    ("okx", b'1.5: {"type":"match","product_id":"A-B"}', "coinbase"),
]


@pytest.mark.parametrize(("format", "line", "remedy"), OF_OTHER_MARKETS)
def test_a_capture_of_another_market_is_refused_before_anything_is_written(
    import_lines, tmp, format, line, remedy
):
    with pytest.raises(tw.InvalidOption, match="belongs to another market") as caught:
        import_lines(format, [b"no message", line])
    assert remedy in caught.value.hint
    assert not (tmp / "archive").exists()


def test_what_decides_no_record_is_no_part_of_the_job(import_lines):
    first, _ = import_lines("binance-spot", [depth()])
    second, _ = import_lines("binance-spot", [depth()], check_market=False)
    assert second.already
    assert first.job == second.job


def test_a_snapshot_without_a_symbol_belongs_to_the_only_one(import_lines, tmp):
    lines = [depth(pu=2), AT + b'{"lastUpdateId":9,"bids":[["1","2"]],"asks":[]}']
    summary, content = import_lines("binance-usdm", lines)
    assert len(content[f"v1/binance_usdm/AAA/{DAY}/book"]) == 2
    assert summary.clean


@pytest.mark.parametrize("symbols", [[], ["AAA", "BBB"]])
def test_a_snapshot_of_an_unknown_symbol_is_a_bad_row(import_lines, symbols):
    lines = [depth(pu=2, s=symbol) for symbol in symbols]
    lines.append(AT + b'{"lastUpdateId":9,"bids":[],"asks":[]}')
    summary, _ = import_lines("binance-usdm", lines)
    assert summary.bad == {"a snapshot of an unknown symbol": 1}


def test_a_snapshot_of_another_symbol_does_not_become_the_book_of_the_one_asked_for(import_lines):
    nameless = AT + b'{"lastUpdateId":9,"bids":[["7","7"]],"asks":[]}'
    lines = [depth(pu=2, s="BBB"), nameless, depth(pu=2, s="AAA"), nameless]
    summary, content = import_lines("binance-usdm", lines, symbols=["AAA"])
    assert summary.bad == {"a snapshot of an unknown symbol": 1}
    assert summary.skipped == {"another symbol": 2}
    assert len(without_losses(content[f"v1/binance_usdm/AAA/{DAY}/book"])) == 1


def test_a_snapshot_at_the_start_belongs_to_the_symbol_asked_for(import_lines):
    lines = [AT + b'{"lastUpdateId":4,"bids":[["1","2"]],"asks":[]}', depth(pu=2)]
    summary, content = import_lines("binance-usdm", lines, symbols=["AAA"])
    assert summary.clean
    assert len(content[f"v1/binance_usdm/AAA/{DAY}/book"]) == 2


def test_an_aggregate_trade_has_its_own_id(import_lines, tmp):
    data = {"e": "aggTrade", "s": "AAA", "a": 77, "p": "1.5", "q": "2", "T": 5, "m": False}
    import_lines("binance-usdm", [capture_line(MIDNIGHT_NS, data)])
    _, trade = event_of(tmp, "binance_usdm", "AAA", "trades")
    assert (trade.trade_id, trade.price, trade.is_buyer_maker) == (77, 150_000_000, 0)
    assert trade.timestamp_ns == 5_000_000


def test_a_book_ticker_of_spot_has_no_time_of_the_venue(import_lines, tmp):
    data = {"u": 3, "s": "AAA", "b": "1", "B": "2", "a": "3", "A": "4"}
    import_lines("binance-spot", [capture_line(MIDNIGHT_NS, {"data": data})])
    _, quote = event_of(tmp, "binance_spot", "AAA", "quotes")
    assert (quote.bid_price, quote.ask_size) == (100_000_000, 400_000_000)
    assert quote.timestamp_ns == MIDNIGHT_NS


def test_known_messages_that_are_not_imported_are_skipped_and_counted(import_lines):
    lines = [AT + b'{"result":null,"id":1}', b"", AT + b'{"data":{"e":"kline","s":"AAA"}}']
    summary, _ = import_lines("binance-spot", lines)
    assert summary.skipped == {"acknowledgement": 1, "blank line": 1, "kline": 1}
    assert summary.clean


def test_received_times_keep_their_last_digits(import_lines, tmp):
    line = b'1652459225.5037491: {"arg":{"channel":"trades","instId":"A"},"data":[{"tradeId":"7",'
    line += b'"px":"3.5","sz":"1","side":"sell","ts":"1652459199958"}]}'
    import_lines("okx", [line])
    time_ns, trade = event_of(tmp, "okx", "A", "trades", "2022-05-13")
    assert time_ns == 1652459225_503749100
    assert (trade.timestamp_ns, trade.is_buyer_maker) == (1652459199958_000_000, 1)


def test_a_match_of_coinbase_names_the_makers_side(import_lines, tmp):
    match = {"type": "match", "trade_id": 5, "side": "sell", "size": "2", "price": "3"}
    match |= {"product_id": "A-B", "time": "2021-04-17T16:43:37.089723Z"}
    import_lines("coinbase", [b"1618677817.1: " + json.dumps(match).encode()])
    _, trade = event_of(tmp, "coinbase", "A-B", "trades", "2021-04-17")
    assert (trade.is_buyer_maker, trade.timestamp_ns) == (0, 1618677817_089723000)


BAD = {
    "not JSON": [AT + b'{"data":', AT + b"[" * 100_000, AT + b"\xff", AT],
    "no time at the start": [
        b"{}",
        b"12a {}",
        b"-5 {}",
        b"9" * 30 + b" {}",
        b"9223372036854775808 {}",
    ],
    "a field is missing or of another type": [
        AT + b"[]",
        AT + b"7",
        AT + b'{"data":7}',
        AT + b'{"data":{}}',
        AT + b'{"lastUpdateId":"9","symbol":"AAA","bids":[],"asks":[]}',
        depth(U=True, pu=1),
        depth(U=-1, pu=1),
        depth(u=1.5, pu=1),
        depth(u=2**64, pu=1),
        depth(pu=None),
        depth(pu=1, b=7),
    ],
    "a value does not fit": [
        depth(pu=1, b=[["1.123456789", "1"]]),
        depth(pu=1, b=[["1e30", "1"]]),
        depth(pu=1, b=[["NaN", "1"]]),
        depth(pu=1, b=["12"]),
        depth(pu=1, b=[["1"]]),
        depth(pu=1, b=[[1.5, "1"]]),
        depth(pu=1, b=[["1", "-1"]]),
        depth(pu=1, a=[["1", "-0.00000001"]]),
        depth(pu=1, b=[[float("nan"), "1"]]),
        depth(pu=1, b=[["1", float("inf")]]),
        depth(pu=1, b=[["Infinity", "1"]]),
        AT + b'{"data":{"e":"trade","s":"AAA","t":1,"T":1,"p":"1","q":"-1","m":true}}',
        AT + b'{"data":{"e":"bookTicker","s":"AAA","u":1,"b":"1","B":"-1","a":"2","A":"1"}}',
        AT + b'{"lastUpdateId":9,"symbol":"AAA","bids":[["1","-1"]],"asks":[]}',
    ],
    "not a valid name": [depth(s="../x", pu=1), depth(s="", pu=1), depth(s=5, pu=1)],
    "unknown message": [depth(e="new", pu=1)],
}


@pytest.mark.parametrize(
    ("why", "line"), [(why, line) for why, lines in BAD.items() for line in lines]
)
def test_a_bad_row_is_counted_by_its_reason_and_written_to_the_file(
    import_lines, rejected, why, line
):
    summary, content = import_lines("binance-usdm", [depth(pu=2), line, depth(U=10, pu=9, u=12)])
    assert summary.bad == {why: 1}
    events = without_losses(content[f"v1/binance_usdm/AAA/{DAY}/book"])
    assert len(events) == 2, "the import continues"
    (row,) = rejected()
    assert (row["file"], row["line"], row["why"]) == ("capture", 2, why)
    kept = row["text"].encode() if "text" in row else None
    assert kept in (line, None)


def test_lost_digits_are_reported_with_the_remedy(import_lines, rejected):
    import_lines("binance-usdm", [depth(pu=1, b=[["1.123456789", "1"]])])
    (row,) = rejected()
    assert "use a larger scale" in row["detail"]


def test_a_long_bad_row_is_truncated(import_lines, rejected, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.report.MAX_KEPT_BYTES", 10)
    import_lines("okx", [b"x" * 100])
    (row,) = rejected()
    assert (row["text"], row["bytes"]) == ("x" * 10, 100)


def test_negative_prices_and_exponents_are_parsed(import_lines, tmp):
    import_lines("binance-usdm", [depth(pu=1, b=[["-1.5", "1E-8"], ["2.5e1", "0e9"]])])
    _, event = event_of(tmp, "binance_usdm", "AAA", "book")
    assert event.bids.tolist() == [(-150_000_000, 1), (2_500_000_000, 0)]


def test_a_line_too_long_gives_no_record_whatever_its_parts_are(import_lines, monkeypatch):
    line = depth()
    monkeypatch.setattr("tapewire.ingest.source.MAX_LINE_BYTES", len(line))
    summary, content = import_lines("binance-spot", [line[:-1], line + line, line])
    assert summary.bad == {"not JSON": 1, "the line is too long": 2}
    assert content == {}


@pytest.mark.parametrize("level", [[True, "2"], ["1.5", False]])
def test_a_json_boolean_is_no_number(import_lines, level):
    summary, content = import_lines("binance-spot", [depth(b=[level])])
    assert summary.bad == {"a value does not fit": 1}
    assert content == {}


def test_a_byte_order_mark_is_not_part_of_the_first_row(import_lines):
    summary, _ = import_lines("binance-usdm", [b"\xef\xbb\xbf" + depth(pu=1) + b"\r"])
    assert (summary.bad, summary.records) == ({}, 1)


def test_kinds_of_skipped_messages_are_few_and_printable(import_lines):
    """They are text from the file."""
    lines = [
        b'1.5: {"event":"\\u001b[31m\\ud800"}',
        *(b'1.5: {"event":"e%d"}' % i for i in range(1000)),
    ]
    summary, _ = import_lines("okx", lines)
    assert sum(summary.skipped.values()) == 1001
    assert len(summary.skipped) <= 101
    assert all(kind.isascii() and kind.isprintable() for kind in summary.skipped)


def test_a_row_too_long_for_a_record_adds_nothing(import_lines, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.capture_lines.MAX_PAYLOAD_BYTES", 300)
    lines = [depth(pu=2), depth(U=10, pu=9, u=12, padding="x" * 300)]
    summary, content = import_lines("binance-usdm", lines, keep_wire=True)
    assert summary.bad == {"a value does not fit": 1}
    assert len(without_losses(content[f"v1/binance_usdm/AAA/{DAY}/book"])) == 1
    assert len(content[f"v1/binance_usdm/AAA/{DAY}/raw"]) == 1


COINBASE_DAY = "v1/coinbase/A-B/2021-04-17/book"


def coinbase_lines(*changes):
    at = b"1618677817.1: "
    yield at + b'{"type":"snapshot","product_id":"A-B","bids":[["1","1"]],"asks":[["2","1"]]}'
    for change in changes:
        update = {"type": "l2update", "product_id": "A-B", "changes": [change]}
        yield at + json.dumps(update | {"time": "2021-04-17T16:43:37.089723Z"}).encode()


def test_a_diff_of_coinbase_that_cannot_be_parsed_is_a_gap(import_lines, tmp):
    """Nothing else shows it: its diffs have no update ids."""
    lines = coinbase_lines(
        ["buy", "1", "2"], ["buy", "1", "0.0000000001"], ["buy", "1", "-1"], ["buy", "1", "3"]
    )
    summary, content = import_lines("coinbase", list(lines))
    assert summary.bad == {"a value does not fit": 2}
    assert list(summary.untrusted) == ["coinbase/A-B/book"]
    (gap,) = content[COINBASE_DAY, "gaps"]
    assert (gap.kind, gap.seq) == ("parse", 2)
    assert len(content[COINBASE_DAY]) == 4, "snapshot, diff, reset, diff"


def test_a_snapshot_of_coinbase_repairs_the_book_after_a_bad_diff(import_lines):
    lines = [*coinbase_lines(["buy", "1", "-1"]), *coinbase_lines(["buy", "1", "2"])]
    summary, _ = import_lines("coinbase", lines)
    assert (summary.gaps, summary.untrusted) == (1, {})
