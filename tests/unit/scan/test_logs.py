import pickle

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.spark.reading.live_queues import refuse_live


def make(path):
    tw.open_publisher(path, segment_bytes=1 << 20, preallocate=False).close()
    return path


def found(path, **options):
    asked = ReadOptions.parse({"path": str(path), **options})
    return resolve(asked.paths, asked)


def names(path, **options):
    return [log.name for log in found(path, **options)]


@pytest.fixture
def archive(tmp):
    layout = bus.ArchiveLayout(tmp / "archive")
    for symbol in ("BTC", "ETH"):
        for date in ("2026-01-30", "2026-01-31"):
            make(layout.log("okx", symbol, date, "book"))
    make(layout.log("cme", "ETH", "2026-01-31", "trades"))
    make(layout.raw("okx", "2026-01-31"))
    return tmp / "archive"


def test_a_queue_is_one_log_named_by_its_directory(tmp):
    make(tmp / "md")
    assert found(tmp / "md") == [LogRef("md", str(tmp / "md"))]


def test_a_directory_of_queues_is_all_of_them(tmp):
    make(tmp / "bus" / "a")
    make(tmp / "bus" / "deep" / "b")
    assert names(tmp / "bus") == ["a", "deep/b"]


def test_the_path_of_a_log_in_an_archive_names_venue_symbol_and_day(archive):
    log = next(log for log in found(archive) if log.venue == "cme")
    assert log.name == "cme/ETH/2026-01-31/trades"
    assert (log.symbol, log.date, log.stream) == ("ETH", "2026-01-31", "trades")


def test_a_raw_log_of_an_archive_has_no_symbol(archive):
    raw = next(log for log in found(archive) if log.stream == "raw")
    assert (raw.name, raw.venue, raw.symbol) == ("raw/okx/2026-01-31", "okx", None)


def test_a_part_of_an_archive_has_the_same_names(archive):
    assert names(archive / "v1" / "okx" / "BTC") == [
        "okx/BTC/2026-01-30/book",
        "okx/BTC/2026-01-31/book",
    ]
    assert names(archive / "v1/okx/BTC/2026-01-30/book") == ["okx/BTC/2026-01-30/book"]


def test_the_path_of_a_queue_on_a_bus_names_venue_and_symbol(tmp):
    layout = bus.Layout(tmp)
    make(layout.streams.raw("okx"))
    make(layout.streams.clean("okx", "BTC", "book"))
    make(layout.orders.strategy("alpha").orders_out)
    assert names(tmp) == ["clean/okx/BTC/book", "orders/alpha/orders_out", "raw/okx"]


def test_a_glob_names_logs_from_its_fixed_part_on(archive):
    assert names(archive / "v1" / "*" / "ETH" / "2026-01-31") == [
        "cme/ETH/2026-01-31/trades",
        "okx/ETH/2026-01-31/book",
    ]


def test_a_glob_over_two_archives_keeps_their_logs_apart(tmp):
    for root in ("one", "two"):
        make(bus.ArchiveLayout(tmp / root).log("okx", "BTC", "2026-01-31", "book"))
    assert names(tmp / "*") == [
        "one/v1/okx/BTC/2026-01-31/book",
        "two/v1/okx/BTC/2026-01-31/book",
    ]


def test_a_glob_of_the_logs_of_two_archives_keeps_them_apart(tmp):
    for root in ("one", "two"):
        make(bus.ArchiveLayout(tmp / root).log("okx", "BTC", "2026-01-31", "book"))
    logs = found(tmp / "*" / "v1" / "okx" / "BTC" / "2026-01-31" / "book")
    assert [log.name for log in logs] == [
        "one/v1/okx/BTC/2026-01-31/book",
        "two/v1/okx/BTC/2026-01-31/book",
    ]
    assert {log.symbol for log in logs} == {"BTC"}


def test_two_logs_with_the_same_name_are_refused(tmp):
    for root in ("one", "two"):
        make(tmp / root / "md")
    asked = ReadOptions(paths=(str(tmp / "one" / "md"), str(tmp / "two" / "md")))
    with pytest.raises(tw.InvalidOption, match="two logs have the same name: name=md"):
        resolve(asked.paths, asked)


def test_a_log_that_is_given_more_than_once_is_read_once(tmp):
    make(tmp / "md")
    asked = ReadOptions(paths=(str(tmp / "md"), str(tmp / "md") + "/"))
    assert len(resolve(asked.paths, asked)) == 1


def test_symbols_leave_out_the_logs_of_others(archive):
    assert {log.symbol for log in found(archive / "v1", symbols="ETH")} == {"ETH"}
    assert {log.venue for log in found(archive / "v1", symbols="cme:ETH")} == {"cme"}


def test_symbols_keep_a_log_whose_path_names_no_symbol(archive):
    assert "raw/okx/2026-01-31" in names(archive, symbols="ETH")
    assert "raw/okx/2026-01-31" not in names(archive, symbols="cme:ETH")


def test_what_the_sink_has_staged_is_not_read(tmp):
    make(tmp / "out" / "a")
    make(tmp / "out" / "_tapewire" / "staging" / "job" / "b")
    assert names(tmp / "out") == ["a"]


def test_a_missing_path_is_an_error(tmp):
    with pytest.raises(FileNotFoundError, match="no such log"):
        found(tmp / "nowhere")


def test_a_glob_without_matches_is_an_error(tmp):
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        found(tmp / "*")


def test_a_directory_without_a_log_is_an_error(tmp):
    with pytest.raises(tw.NotALog, match=r"no log in this directory .*control\.meta"):
        found(tmp)


def test_a_file_is_no_log(tmp):
    (tmp / "notes").write_text("x")
    with pytest.raises(tw.NotALog, match="this is a file"):
        found(tmp / "notes")


def test_a_relative_path_becomes_absolute(tmp, monkeypatch):
    make(tmp / "md")
    monkeypatch.chdir(tmp)
    assert found("md")[0].path == str(tmp / "md")


def test_a_log_can_be_sent_to_another_process(archive):
    for log in found(archive):
        assert pickle.loads(pickle.dumps(log)) == log


REMOTE = "spark://cluster:7077"


@pytest.mark.parametrize("master", [REMOTE, None])
def test_a_live_queue_is_refused_where_workers_may_be_elsewhere(tmp, master):
    wanted = r'archive.*option\("shared", "true"\)'
    with (
        tw.open_publisher(tmp / "md", segment_bytes=1 << 20),
        pytest.raises(tw.InvalidOption, match=wanted),
    ):
        refuse_live(found(tmp / "md"), ReadOptions(), master)


@pytest.mark.parametrize("master", ["local[*]", "spark://127.0.0.1:7077"])
def test_a_live_queue_is_read_where_it_is_written(tmp, master):
    with tw.open_publisher(tmp / "md", segment_bytes=1 << 20):
        refuse_live(found(tmp / "md"), ReadOptions(), master)


def test_a_live_queue_that_every_worker_sees_is_read(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=1 << 20):
        refuse_live(found(tmp / "md"), ReadOptions(shared=True), REMOTE)


def test_a_closed_queue_is_read_anywhere(tmp):
    make(tmp / "md")
    refuse_live(found(tmp / "md"), ReadOptions(), REMOTE)


@pytest.mark.parametrize("view", ["trades", "book", "features"])
def test_raw_logs_are_left_out_if_there_are_clean_ones(tmp, view):
    layout = bus.ArchiveLayout(tmp)
    for date in ("2026-01-30", "2026-01-31"):
        make(layout.raw("okx", date))
        make(layout.raw("cme", date))
    make(layout.log("okx", "BTC", "2026-01-30", "book"))
    assert names(tmp, view=view) == [
        "okx/BTC/2026-01-30/book",
        "raw/cme/2026-01-30",
        "raw/cme/2026-01-31",
        "raw/okx/2026-01-31",
    ]
    assert "raw/okx/2026-01-30" in names(tmp, view="records")
