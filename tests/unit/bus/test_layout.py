"""Paths of a bus and an archive, and names that are refused."""

import datetime as dt
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tapewire as tw
from tapewire import bus


def test_streams_have_the_documented_paths():
    streams = bus.Layout("/bus").streams
    assert streams.raw("binance_spot") == Path("/bus/streams/raw/binance_spot/queue")
    assert streams.clean("binance_spot", "BTCUSDT", "book") == Path(
        "/bus/streams/clean/binance_spot/BTCUSDT/book/queue"
    )


def test_a_strategy_has_two_queues():
    alpha = bus.Layout("/bus").orders.strategy("alpha")
    assert alpha.orders_out == Path("/bus/orders/queue/alpha/orders_out")
    assert alpha.orders_in == Path("/bus/orders/queue/alpha/orders_in")


def test_the_archive_has_one_log_per_day():
    archive = bus.ArchiveLayout("archive/")
    log = Path("archive/v1/binance_spot/BTCUSDT/2026-01-31/book")
    assert archive.log("binance_spot", "BTCUSDT", "2026-01-31", "book") == log
    assert archive.log("binance_spot", "BTCUSDT", dt.date(2026, 1, 31), "book") == log
    assert archive.raw("cme", "2026-01-31") == Path("archive/raw/v1/cme/2026-01-31/raw")


def test_a_day_of_the_archive_is_a_utc_day():
    midnight_in_tokyo = dt.datetime(2026, 2, 1, 0, 0, tzinfo=dt.timezone(dt.timedelta(hours=9)))
    assert "2026-01-31" in bus.ArchiveLayout("a").raw("x", midnight_in_tokyo).parts
    with pytest.raises(tw.InvalidName, match="no zone"):
        bus.ArchiveLayout("a").raw("x", dt.datetime(2026, 2, 1))


@pytest.mark.parametrize("date", ["20260131", "2026-W05-6", "2026-02-30", "..", "", None, 20260131])
def test_an_invalid_day_is_refused(date):
    with pytest.raises(tw.InvalidName):
        bus.ArchiveLayout("a").raw("x", date)


HOSTILE = [
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a\\b",
    "/etc",
    "a\0b",
    "a\nb",
    "é",
    "a" * 129,
    "\ud800",
]


@pytest.mark.parametrize("name", [*HOSTILE, None, 5, b"bytes"])
def test_hostile_names_are_refused_everywhere(name):
    layout, archive = bus.Layout("/bus"), bus.ArchiveLayout("a")
    for make in (
        layout.streams.raw,
        lambda n: layout.streams.clean(n, "s", "t"),
        lambda n: layout.streams.clean("v", n, "t"),
        lambda n: layout.streams.clean("v", "s", n),
        layout.orders.strategy,
        lambda n: archive.log(n, "s", "2026-01-31", "t"),
        lambda n: archive.log("v", n, "2026-01-31", "t"),
        lambda n: archive.log("v", "s", "2026-01-31", n),
        lambda n: archive.raw(n, "2026-01-31"),
    ):
        with pytest.raises(tw.InvalidName):
            make(name)


@given(st.text(max_size=200))
@example("a" * 128)
@example("a" * 129)
def test_a_name_is_refused_or_is_one_directory_below_its_parent(name):
    try:
        path = bus.Layout("/bus").streams.raw(name)
    except tw.InvalidName:
        return
    assert path == Path("/bus/streams/raw") / name / "queue"
    assert os.path.normpath(path) == str(path)
    assert len(name.encode()) <= 128


@pytest.fixture(scope="module")
def queue(module_tmp):
    with tw.open_publisher(module_tmp / "queue", segment_bytes=8192):
        yield module_tmp / "queue"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=140))
def test_the_rule_is_the_one_for_readers(queue, name):
    try:
        bus.Layout("/bus").orders.strategy(name)
    except tw.InvalidName:
        with pytest.raises(tw.InvalidName):
            tw.open_subscriber(queue, name)
    else:
        tw.open_subscriber(queue, name).close(forget=True)


def test_a_symbol_with_a_slash_is_refused_with_what_to_write_instead():
    with pytest.raises(tw.InvalidName, match="symbol='BTC/USDT'") as refused:
        bus.Layout("/bus").streams.clean("binance_spot", "BTC/USDT", "book")
    assert "'BTCUSDT' or 'BTC-USDT'" in refused.value.hint


def test_a_very_long_name_is_shortened_in_the_message():
    with pytest.raises(tw.InvalidName) as refused:
        bus.Layout("/bus").streams.raw("x" * 1_000_000)
    assert len(str(refused.value)) < 400
    assert "1000000 characters" in str(refused.value)


def test_a_link_out_of_the_root_is_not_followed(tmp):
    (tmp / "elsewhere").mkdir()
    root = tmp / "bus"
    (root / "streams" / "raw").mkdir(parents=True)
    (root / "streams" / "raw" / "evil").symlink_to(tmp / "elsewhere")
    with pytest.raises(tw.InvalidName, match="leads out of the root"):
        bus.Layout(root).streams.raw("evil")
    assert bus.Layout(root).streams.venues() == []


def test_the_root_itself_may_be_a_link_and_links_inside_it_are_fine(tmp):
    (tmp / "real" / "streams" / "raw" / "a").mkdir(parents=True)
    (tmp / "real" / "streams" / "raw" / "b").symlink_to("a")
    (tmp / "bus").symlink_to(tmp / "real")
    layout = bus.Layout(tmp / "bus")
    assert layout.streams.raw("a") == tmp / "bus" / "streams" / "raw" / "a" / "queue"
    layout.streams.raw("b")


def test_listings_have_directories_with_valid_names(tmp):
    layout = bus.Layout(tmp)
    assert layout.streams.venues() == layout.orders.strategies() == []
    for made in (
        layout.streams.raw("b"),
        layout.streams.raw("a"),
        layout.streams.clean("v", "s", "t"),
        layout.orders.strategy("alpha").orders_out,
    ):
        made.mkdir(parents=True)
    (tmp / "streams" / "raw" / "not a name").mkdir()
    (tmp / "streams" / "raw" / "file").touch()
    assert layout.streams.venues() == ["a", "b"]
    assert layout.streams.clean_streams() == [("v", "s", "t")]
    assert layout.orders.strategies() == ["alpha"]


def test_the_archive_lists_its_venues_symbols_and_days(tmp):
    archive = bus.ArchiveLayout(tmp)
    archive.log("v", "s", "2026-01-31", "book").mkdir(parents=True)
    archive.log("v", "s", "2026-01-30", "book").mkdir(parents=True)
    (tmp / "v1" / "v" / "s" / "lost+found").mkdir()
    assert archive.venues() == ["v"]
    assert archive.symbols("v") == ["s"]
    assert archive.dates("v", "s") == ["2026-01-30", "2026-01-31"]
