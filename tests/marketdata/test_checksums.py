"""Captures of OKX and Bitget → archive → native book: it has the venue's own checksum.

The venue takes CRC-32 of the best 25 levels as it wrote them. After each event the native book is
put into the strings that the capture has for its levels.
"""

import json
import zlib

import pytest

import tapewire as tw
from tapewire import ingest
from tapewire.book import L2Book
from tapewire.book.gaps import GapLedger
from tapewire.protocol.market import scaled
from tests.support.captures import book_logs
from tests.support.marketdata import capture, report_count

OKX = ("okx/OKX.ws.1.0",)
BITGET = ("bitget/BITGET.ws.1.0", "bitget/BITGET.ws.2.0")
VENUES = {None: "okx", "sp": "bitget_spot", "mc": "bitget_mix"}


def books(files):
    """``(line number, venue, symbol, message)`` of each book message of the captures."""
    for path in files:
        for number, line in enumerate(path.read_text().splitlines()):
            if line.startswith("wss"):
                continue
            message = json.loads(line.partition(": ")[2])
            arg = message.get("arg", {})
            if arg.get("channel") == "books" and "action" in message:
                venue = VENUES[arg.get("instType")]
                yield number, venue, arg["instId"], message


class Strings:
    """The strings that a venue last gave each level."""

    def __init__(self):
        self._texts = {}

    def take(self, data):
        for side in ("bids", "asks"):
            for price, size, *_ in data[side]:
                self._texts[side, scaled(price, 8)] = (price, size)

    def of(self, book):
        sides = []
        for side, levels in (("bids", book.bids(25)), ("asks", book.asks(25))):
            texts = []
            for price, size in levels.tolist():
                text = self._texts[side, price]
                assert scaled(text[1], 8) == size
                texts.append(":".join(text))
            sides.append(texts)
        bids, asks = sides
        rows = (side[i] for i in range(25) for side in (bids, asks) if i < len(side))
        return ":".join(rows)


def count_checksums(one):
    right = 0
    readers, native, strings = {}, {}, {}
    for _, venue, symbol, message in books(one.files):
        key = venue, symbol
        if key not in readers:
            (directory,) = book_logs(one.archive, venue, symbol)
            readers[key], native[key], strings[key] = (
                tw.open_log(directory),
                L2Book(8, 8),
                Strings(),
            )
        record = readers[key].next()
        native[key].apply(record)
        data = message["data"][0]
        strings[key].take(data)
        crc = zlib.crc32(strings[key].of(native[key]).encode())
        right += crc == data["checksum"] & 0xFFFFFFFF
    for reader in readers.values():
        assert reader.next() is None, "every record has its message"
        reader.close()
    return right


@pytest.mark.parametrize(("format", "names", "want"), [("okx", OKX, 290), ("bitget", BITGET, 637)])
def test_the_book_has_the_venues_checksum_after_each_update(imported, format, names, want):
    one = imported(format, *names)
    assert one.summary.clean, one.summary
    report_count(format, count_checksums(one), want)


@pytest.mark.parametrize(("format", "names"), [("okx", OKX), ("bitget", BITGET[:1])])
def test_a_lost_update_is_found_by_the_checksum(tmp, format, names):
    files = [capture(name) for name in names]
    found = [(n, v, s, m) for n, v, s, m in books(files) if m["action"] == "update"]
    number, venue, symbol, _ = found[len(found) // 3]
    lines = files[0].read_bytes().splitlines(keepends=True)
    # The next update of this symbol is the first that can show it.
    after = next(n for n, v, s, _ in found if n > number and (v, s) == (venue, symbol))
    received_ns = scaled(lines[after].partition(b": ")[0], 9)
    del lines[number]
    (tmp / "capture").write_bytes(b"".join(lines))

    summary = ingest.run(format, [tmp / "capture"], tmp / "archive")
    (directory,) = book_logs(tmp / "archive", venue, symbol)
    (gap,) = GapLedger(directory).read()
    assert (gap.kind, gap.venue, gap.symbol) == ("checksum", venue, symbol)
    assert gap.timestamp_ns == received_ns
    assert summary.gaps == 1
    assert list(summary.untrusted) == [f"{venue}/{symbol}/book"]

    book = L2Book(8, 8, on_gap="resync")
    with tw.open_log(directory) as log:
        for record in log:
            event = record.decode()
            book.apply(event)
            if record.seq == gap.seq:
                assert event.event_type == 3, "the log has a reset where the ledger has one"
            assert book.trusted == (record.seq < gap.seq)
    assert book.distrust == "reset"
