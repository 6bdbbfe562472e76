"""Instruments and their file: ids that are equal on every host, and files of other programs."""

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest
import xxhash

import tapewire as tw
from tapewire.protocol.instruments import (
    MAX_FILE_BYTES,
    Instrument,
    Instruments,
    UnknownInstrument,
)

BTC = Instrument.of("binance", "BTCUSDT", 2, 5, tick=1)
ETH = Instrument.of("binance", "ETHUSDT", 2, 4)
PING_AN = Instrument.of("szse", "000001", 2, 0, rules="szse", book_mode="l3")


def test_ids_are_hashes_of_the_names():
    assert BTC.venue_id == xxhash.xxh64_intdigest(b"binance") & 0xFFFF
    assert BTC.market_id == xxhash.xxh64_intdigest(b"binance:BTCUSDT") & 0xFFFFFFFF
    assert BTC.symbol_hash == xxhash.xxh64_intdigest(b"binance:BTCUSDT")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"venue": ""}, "venue=''"),
        ({"venue": "a:b"}, "must not contain a colon"),
        ({"symbol": "A\nB"}, r"symbol='A\\nB'"),
        ({"symbol": " A"}, "symbol=' A'"),
        ({"symbol": "x" * 65}, "1 to 64 bytes"),
        ({"symbol": "\ud800"}, "symbol"),
        ({"symbol": 7}, "symbol=7"),
        ({"price_scale": 19}, "price_scale=19"),
        ({"size_scale": -1}, "size_scale=-1"),
        ({"size_scale": True}, "size_scale=True"),
        ({"venue_id": 0}, "venue_id=0"),
        ({"market_id": 2**32}, "market_id=4294967296"),
        ({"rules": "nyse"}, "rules='nyse'"),
        ({"book_mode": "l4"}, "book_mode='l4'"),
        ({"tick": 0}, "tick=0"),
    ],
)
def test_an_invalid_instrument_is_refused(changes, named):
    with pytest.raises(tw.InvalidMessage, match=named):
        replace(BTC, **changes)


def test_they_are_found_by_name_and_id():
    known = Instruments([BTC, ETH, PING_AN])
    assert known.get("binance", "ETHUSDT") is ETH
    assert known.get("okx", "ETHUSDT") is None
    assert known.by_id(PING_AN.venue_id, PING_AN.market_id) is PING_AN
    assert known.by_id(BTC.venue_id, PING_AN.market_id) is None
    assert known.by_market(BTC.market_id) is BTC
    assert known.find("000001") is known.find("szse:000001") is PING_AN
    assert (len(known), BTC in known, list(known)) == (3, True, [BTC, ETH, PING_AN])


def test_a_symbol_of_two_venues_needs_its_venue():
    other = Instrument.of("okx", "BTCUSDT")
    known = Instruments([BTC, other])
    with pytest.raises(UnknownInstrument, match="binance:BTCUSDT, okx:BTCUSDT"):
        known.find("BTCUSDT")
    assert known.find("okx:BTCUSDT") is other
    with pytest.raises(LookupError, match="known=binance:BTCUSDT"):
        known.find("XRPUSDT")


def test_an_id_that_is_in_use_is_replaced_by_the_next_free_one():
    known = Instruments([BTC])
    twin = replace(Instrument.of("okx", "X"), venue_id=BTC.venue_id, market_id=BTC.market_id)
    added = known.add(twin)
    assert (added.venue_id, added.market_id) == (BTC.venue_id + 1, BTC.market_id + 1)
    assert known.by_market(added.market_id) is added
    # The venue has an id now; the highest id is followed by the lowest.
    last = replace(Instrument.of("okx", "Y"), market_id=2**32 - 1)
    assert known.add(last).venue_id == added.venue_id
    assert known.add(replace(last, symbol="Z")).market_id == 1


def test_a_known_instrument_keeps_its_ids():
    known = Instruments([replace(BTC, market_id=5)])
    assert known.add(replace(BTC, price_scale=3)) == replace(BTC, market_id=5, price_scale=3)
    assert len(known) == 1


def test_a_saved_file_is_loaded_from_a_directory_below(tmp):
    Instruments([BTC, PING_AN]).save(tmp)
    below = tmp / "v1" / "binance" / "BTCUSDT" / "2026-01-01" / "book"
    below.mkdir(parents=True)
    found = Instruments.load(below)
    assert set(found) == {BTC, PING_AN}
    assert found.path == str(tmp / "instruments.json")
    assert os.stat(found.path).st_mode & 0o777 == 0o600
    assert {path.name for path in tmp.iterdir()} == {"instruments.json", "v1"}


def test_without_a_file_there_are_none(tmp):
    assert len(Instruments.load(tmp / "not" / "there")) == 0


@pytest.mark.root
def test_a_file_of_another_user_is_read_only_if_the_log_is_theirs_too(tmp, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("needs root: a file is given to another user")
    Instruments([BTC]).save(tmp)
    os.chown(tmp / "instruments.json", 12_345, -1)
    log = tmp / "log"
    log.mkdir()
    assert len(Instruments.load(log)) == 0
    os.chown(log, 12_345, -1)
    assert len(Instruments.load(log)) == 1
    os.chown(log, 0, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert len(Instruments.load(log)) == 1


def test_saving_adds_to_the_existing_file(tmp):
    Instruments([BTC]).save(tmp)
    Instruments([ETH, replace(BTC, price_scale=4)]).save(tmp)
    assert set(Instruments.load(tmp)) == {replace(BTC, price_scale=4), ETH}
    before = (tmp / "instruments.json").stat()
    Instruments([ETH]).save(tmp)  # nothing new: the file is not written
    assert (tmp / "instruments.json").stat() == before


def test_ids_that_conflict_with_the_file_are_refused(tmp):
    Instruments([BTC]).save(tmp)
    before = (tmp / "instruments.json").read_bytes()
    for twin in (
        replace(BTC, market_id=BTC.market_id + 1),
        replace(ETH, market_id=BTC.market_id),
        replace(ETH, venue_id=7),
        replace(PING_AN, venue_id=BTC.venue_id),
    ):
        with pytest.raises(tw.LayoutConflict, match="conflicting ids") as caught:
            Instruments([twin]).save(tmp)
        assert caught.value.path == str(tmp / "instruments.json")
    assert (tmp / "instruments.json").read_bytes() == before


def test_processes_that_save_at_once_lose_nothing(tmp):
    code = (
        "import sys; from tapewire.protocol.instruments import Instrument, Instruments\n"
        "for n in range(5):\n"
        "    Instruments([Instrument.of('venue', f'{sys.argv[2]}-{n}')]).save(sys.argv[1])\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, tmp, str(n)]) for n in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(Instruments.load(tmp)) == 15


def entry(**changes):
    instrument = {name: getattr(BTC, name) for name in BTC.__dataclass_fields__} | changes
    return {name: value for name, value in instrument.items() if value is not ...}


def document(*entries, **changes):
    return {"format": "tapewire-instruments", "version": 1, "instruments": [*entries]} | changes


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"format": NaN}', "not valid JSON"),
        ([], "must be an object"),
        (document(format="tapewire-types"), "must be an object with"),
        (document(version=0), "no such version"),
        (document(version="1"), "version must be of type int"),
        (document(more=1), "unknown member: 'more'"),
        (document(instruments={}), "instruments must be of type list"),
        (document(7), r"instruments\[0\] must be an object"),
        (document(entry(venue=...)), "lacks a member: venue"),
        (document(entry(tick="1")), "tick must be of type int | None"),
        (document(entry(tick=True)), "tick"),
        (document(entry(price_scale=19)), "price_scale=19"),
        (document(entry(symbol="\x1b[31m")), "symbol must be printable"),
        (document(entry(rules="x")), "rules="),
        (document(entry(market_id=0)), "market_id=0"),
        (document(entry(), entry()), r"instruments\[1\]: duplicate instrument"),
        (document(entry(), entry(symbol="B")), r"instruments\[1\]: conflicting ids"),
        (document(entry(), entry(symbol="B", market_id=5, venue_id=6)), "venue_id=6"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_file_is_named(tmp, content, named):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp / "instruments.json").write_bytes(text)
    with pytest.raises(tw.CorruptMetadata, match=named) as caught:
        Instruments.load(tmp)
    assert caught.value.path == str(tmp / "instruments.json")
    assert "restore the file" in caught.value.hint
    with pytest.raises(tw.CorruptMetadata):
        Instruments([ETH]).save(tmp)
    assert (tmp / "instruments.json").read_bytes() == text


def test_a_file_of_a_later_release_is_refused(tmp):
    (tmp / "instruments.json").write_text(json.dumps(document(version=2)))
    with pytest.raises(tw.UnsupportedVersion, match="version=2"):
        Instruments.load(tmp)


def test_a_link_and_a_pipe_are_not_followed(tmp):
    (tmp / "real").write_text(json.dumps(document()))
    (tmp / "instruments.json").symlink_to(tmp / "real")
    with pytest.raises(tw.CorruptMetadata, match="link"):
        Instruments.load(tmp)
    (tmp / "instruments.json").unlink()
    os.mkfifo(tmp / "instruments.json")
    with pytest.raises(tw.CorruptMetadata, match="regular"):
        Instruments.load(tmp)


def test_a_file_above_the_limit_is_refused_with_its_size_and_the_limit(tmp):
    with open(tmp / "instruments.json", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(tw.CorruptMetadata) as caught:
        Instruments.load(tmp)
    assert f"bytes={MAX_FILE_BYTES + 1}, max={MAX_FILE_BYTES}" in str(caught.value)
    assert caught.value.path == str(tmp / "instruments.json")


def memory_of(call):
    """Return what `call` returned or raised, the bytes still allocated, and the peak."""
    tracemalloc.start()
    try:
        try:
            result = call()
        except tw.TapewireError as error:
            result = error
        return result, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


HOSTILE = {
    "empty objects": b"{}",
    "numbers": b"0",
    "objects of one member": b'{"a":0}',
    "an object of lists": b'{"venue":[' + b"{}," * 100_000 + b"{}]}",
    "a long text": b'{"venue":"' + b"x" * 300_000 + b'"}',
    "a wide text": b'{"venue":"\xf0\x9f\x98\x80' + b"x" * 300_000 + b'"}',
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_malicious_file_needs_no_more_memory_than_an_entry(tmp, unit):
    """All objects used to be created first: 1.7 GB for a file of the maximum size."""
    head, size = b'{"format": "tapewire-instruments", "version": 1, "instruments": [', 4 << 20
    body = (unit + b",") * (size // (len(unit) + 1)) + unit
    (tmp / "instruments.json").write_bytes(head + body + b"]}")
    error, _, peak = memory_of(lambda: Instruments.load(tmp))
    assert isinstance(error, tw.CorruptMetadata)
    assert peak < 2 << 20


def test_more_instruments_than_permitted_are_refused_without_reading_the_rest(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.protocol.instruments.MAX_INSTRUMENTS", 3)
    entries = [entry(symbol=f"S{n}", market_id=n + 1) for n in range(5)]
    (tmp / "instruments.json").write_text(json.dumps(document(*entries)))
    with pytest.raises(tw.CorruptMetadata, match=r"too many instruments: .*max=3"):
        Instruments.load(tmp)


def test_the_memory_of_loading_depends_on_the_instruments_not_on_the_file(tmp):
    stays, most = {}, {}
    for count in (500, 5000):
        entries = [entry(symbol=f"S{n}", market_id=n + 1) for n in range(count)]
        (tmp / "instruments.json").write_text(json.dumps(document(*entries)))
        loaded, stays[count], most[count] = memory_of(lambda: Instruments.load(tmp))
        assert len(loaded) == count
        assert most[count] - stays[count] < 1 << 20  # the window; the file has up to 0.8 MiB
        del loaded
    assert stays[5000] < 12 * stays[500]
    assert stays[5000] < 5000 * 700
    # Equal texts are stored once.
    first, *others = Instruments.load(tmp)
    assert all(other.venue is first.venue for other in others)
