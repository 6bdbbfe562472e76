"""Files that are empty, of another encoding, or lack what an option provides."""

import pytest

from tapewire import ingest
from tapewire.errors import CorruptSource
from tapewire.ingest.registry import IMPORTERS
from tests.support.archives import count_of, records_of
from tests.support.captures import MIDNIGHT_NS, capture_line
from tests.support.commands import tapewire
from tests.support.dbn_files import NANO, plain_header, plain_mbo
from tests.support.order_feeds import DBN_T

OPTIONS = {"itch": {"date": "2024-01-02"}, "szse": {"date": "2024-01-02"}}
SSE = "MDTime,SecurityID,ChannelNo,ApplSeqNum,OrderType,OrderPrice,OrderQty,OrderBSFlag,OrderNO"


@pytest.mark.parametrize("format", sorted(IMPORTERS))
def test_an_empty_file_is_refused_in_every_format(tmp, format):
    path = tmp / "AMZN_2012-06-21_34200000_57600000_message_1.csv"
    path.write_bytes(b"")
    with pytest.raises(CorruptSource, match="the file is empty") as caught:
        ingest.run(format, [path], tmp / "archive", **OPTIONS.get(format, {}))
    assert "complete file" in caught.value.hint
    assert not (tmp / "archive").exists()
    words = [f"--option={name}={value}" for name, value in OPTIONS.get(format, {}).items()]
    assert tapewire("import", format, path, "--to", tmp / "archive", *words).code == 3


def test_a_dbz_file_is_named_with_the_remedy(tmp):
    (tmp / "day.dbz").write_bytes(b"\x51\x2a\x4d\x18" + bytes(100))
    with pytest.raises(CorruptSource, match="a DBZ file") as caught:
        ingest.run("dbn", [tmp / "day.dbz"], tmp / "archive")
    assert "convert it" in caught.value.hint


def test_a_file_of_another_format_gets_no_advice_about_records_before(tmp):
    (tmp / "day.dbn").write_bytes(b"time,price\n1,2\n")
    with pytest.raises(CorruptSource, match="not a DBN file") as caught:
        ingest.run("dbn", [tmp / "day.dbn"], tmp / "archive")
    assert "records before" not in caught.value.hint


def test_files_of_shanghai_without_the_day_get_it_from_the_option(tmp):
    row = "09:20:00.000,600000,6,1,A,10.00,100,B,1"
    (tmp / "orders.csv").write_text(f"{SSE}\n{row}\n")
    summary = ingest.run("sse", [tmp / "orders.csv"], tmp / "archive", date="2024-01-02")
    assert summary.clean
    (record,) = records_of(tmp / "archive", "sse", "600000", "book")
    assert record.decode().exchange_ts_ns == 1_704_158_400 * NANO  # 09:20 in Shanghai


def test_trades_of_several_publishers_are_imported_with_one_book(tmp):
    at = {"event": DBN_T, "recv": DBN_T}
    rows = [
        plain_mbo(b"R", 0, b"N", 0, 0, **at),
        plain_mbo(b"A", 1, b"B", **at),
        plain_mbo(b"T", 0, b"A", publisher=3, **at),
        plain_mbo(b"T", 0, b"A", **at),
        plain_mbo(b"A", 1, b"B", publisher=3, **at),
    ]
    (tmp / "day.dbn").write_bytes(b"".join([plain_header(), *rows]))
    summary = ingest.run("dbn", [tmp / "day.dbn"], tmp / "archive")
    assert summary.bad == {"another publisher than the instrument's first": 1}
    assert count_of(tmp / "archive", "xnas.itch", "7", "trades") == 2
    assert count_of(tmp / "archive", "xnas.itch", "7", "book") == 2
    assert not summary.untrusted, "another venue's order is no part of this book"


def test_no_row_could_be_read_is_reported_after_a_heartbeat_too(tmp):
    lines = [b'1618677817.1: {"type":"heartbeat","product_id":"A-B"}', b"1618677817.2: {}"]
    (tmp / "capture").write_bytes(b"\n".join(lines))
    words = ("import", "coinbase", tmp / "capture", "--to", tmp / "archive")
    ran = tapewire(*words, "--option=check_market=false")
    assert "check that the files are of this format" in ran.out


def test_an_option_that_may_be_unset_is_true_or_false(tmp):
    (tmp / "orders_20240102.csv").write_text(f"{SSE}\n09:20:00.000,600000,6,1,A,10.00,100,B,1\n")
    words = ("import", "sse", tmp / "orders_20240102.csv", "--to", tmp / "archive")
    assert tapewire(*words, "--option=check_gaps=maybe").code == 2
    assert tapewire(*words, "--option=check_gaps=false").code == 0


def test_the_update_id_of_a_book_ticker_is_in_the_venues_own_bytes(tmp):
    """A quote has no place for it: 56 bytes, all of them taken."""
    data = {"e": "bookTicker", "u": 77, "s": "AAA", "b": "1", "B": "2", "a": "3", "A": "4", "T": 5}
    (tmp / "capture").write_bytes(capture_line(MIDNIGHT_NS, {"data": data}))
    ingest.run("binance-usdm", [tmp / "capture"], tmp / "archive", keep_wire=True)
    (record,) = records_of(tmp / "archive", "binance_usdm", "AAA", "raw")
    assert b'"u": 77' in bytes(record.payload) or b'"u":77' in bytes(record.payload)
