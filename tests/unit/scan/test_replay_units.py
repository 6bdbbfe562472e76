"""Which logs are replayed as one, and for which instrument."""

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.protocol.instruments import Instrument, Instruments, UnknownInstrument
from tapewire.protocol.market import l2_snapshot

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.replay_units import units_of
from tests.support.spark_views import parsed, table

OKX, CME, ETH = (
    Instrument.of(venue, symbol, 2, 3)
    for venue, symbol in (("okx", "BTC"), ("cme", "BTC"), ("okx", "ETH"))
)


def write(path, *instruments, count=5):
    with tw.open_publisher(path, segment_bytes=1 << 20) as writer:
        for time in range(1_000, 1_000 + count):
            for one in instruments:
                event = l2_snapshot(one, time, bids=[(9, 1)], asks=[(11, 1)])
                writer.append(0x1000, event, timestamp_ns=time)


def units(path, **options):
    asked = parsed(path, **{"view": "book", **options})
    found = units_of(asked, resolve(asked.paths, asked))
    return [(str(unit.instrument), [log.name for log in unit.logs]) for unit in found]


@pytest.mark.parametrize(
    ("symbols", "rows"),
    [({}, 10), ({"symbols": "ETH"}, 5), ({"symbols": "BTC"}, 5), ({"symbols": "okx:BTC,ETH"}, 10)],
)
@pytest.mark.parametrize("view", ["book", "features"])
def test_a_raw_log_is_replayed_if_there_is_no_clean_one(tmp, view, symbols, rows):
    Instruments([OKX, CME, ETH]).save(tmp)
    raw = bus.Layout(tmp).streams.raw("okx")
    write(raw, OKX, ETH)
    found = table(raw, view=view, **symbols)
    assert found.num_rows == rows
    assert set(found["venue"].to_pylist()) == {"okx"}


def test_a_symbol_of_several_venues_is_a_unit_for_each(tmp):
    Instruments([OKX, CME, ETH]).save(tmp)
    write(tmp / "q", OKX, CME, ETH)
    assert units(tmp / "q", symbols="BTC") == [("cme:BTC", ["q"]), ("okx:BTC", ["q"])]
    assert units(tmp / "q", symbols="cme:BTC") == [("cme:BTC", ["q"])]
    assert table(tmp / "q", view="book", symbols="BTC").num_rows == 10


def test_raw_logs_of_other_venues_are_not_in_a_unit(tmp):
    Instruments([OKX, CME, ETH]).save(tmp)
    layout = bus.Layout(tmp)
    write(layout.streams.raw("okx"), OKX, ETH)
    write(layout.streams.raw("cme"), CME)
    assert units(tmp, symbols="BTC") == [("cme:BTC", ["raw/cme"]), ("okx:BTC", ["raw/okx"])]


def test_an_unknown_symbol_is_an_error(tmp):
    Instruments([OKX]).save(tmp)
    write(tmp / "q", OKX)
    with pytest.raises(UnknownInstrument, match="symbol='XRP', known=okx:BTC"):
        units(tmp / "q", symbols="XRP")


def test_a_symbol_of_a_path_need_not_be_in_instruments_of_other_logs(tmp):
    layout = bus.Layout(tmp)
    write(layout.streams.clean("okx", "BTC", "book"), OKX)
    write(layout.streams.raw("cme"), CME)
    assert units(tmp, symbols="BTC") == [("None", ["clean/okx/BTC/book"])]


def runs(logs, **done):
    found = units_of(parsed("/a", view="book"), logs, **done)
    return {unit.name: "".join(log.date[-1] for log in unit.logs if log.date) for unit in found}


def days_of(*numbers, stream="book"):
    return [
        LogRef(f"v/S/2024-01-0{n}/{stream}", f"/a/{n}/{stream}", "v", "S", f"2024-01-0{n}", stream)
        for n in numbers
    ]


def test_consecutive_days_are_one_unit():
    assert runs(days_of(1, 2, 4, 5, 8)) == {
        "v:S@2024-01-01": "12",
        "v:S@2024-01-04": "45",
        "v:S@2024-01-08": "8",
    }
    assert runs([*days_of(1, 3), *days_of(2, stream="trades")]) == {"v:S@2024-01-01": "123"}
    assert runs([*days_of(1), LogRef("clean/v/S/book", "/b", "v", "S", None, "book")]) == {
        "v:S": "",
        "v:S@2024-01-01": "1",
    }


@pytest.mark.parametrize(
    ("there", "read", "begun", "expected"),
    [
        ((1, 2, 3), (1, 3), (1, 3), {1: "12", 3: "3"}),  # the missing day was added
        ((1, 2, 3, 4), (2, 3), (2,), {1: "1", 2: "234"}),  # an earlier day was added
        ((3, 4), (1, 2, 3), (1,), {1: "34"}),  # days that were read were removed
        ((2, 4, 5, 6), (1, 2, 3, 4), (1,), {1: "2456"}),  # and one between was not
        ((1, 4), (1,), (1,), {1: "1", 4: "4"}),  # a day after a missing one is a new unit
    ],
)
def test_units_that_a_query_has_begun_do_not_change(there, read, begun, expected):
    found = runs(
        days_of(*there),
        read={log.name for log in days_of(*read)},
        begun=[f"v:S@2024-01-0{n}" for n in begun],
    )
    assert found == {f"v:S@2024-01-0{n}": days for n, days in expected.items()}


def test_archives_with_different_ids_for_an_instrument_are_refused(tmp):
    """The events of one of them would be left out without an error."""
    other = Instrument("okx", "BTC", 2, 3, OKX.venue_id, OKX.market_id + 1)
    for root, date, one in (("a", "2026-01-30", OKX), ("b", "2026-01-31", other)):
        write(bus.ArchiveLayout(tmp / root).log("okx", "BTC", date, "book"), one)
        Instruments([one]).save(tmp / root)
    with pytest.raises(
        tw.InvalidOption, match=r"disagree on the ids .*instrument=okx:BTC.*read them separately"
    ):
        units(tmp / "*")
    assert table(tmp / "a", view="book").num_rows == 5


def test_a_relative_path_of_instruments_is_that_of_the_driver(tmp, monkeypatch):
    monkeypatch.chdir(tmp)
    asked = parsed(tmp, view="trades", instruments="known/instruments.json").from_here()
    assert asked.instruments == str(tmp / "known" / "instruments.json")
