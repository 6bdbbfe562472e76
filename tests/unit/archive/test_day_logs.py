import itertools
import resource

import pytest

import tapewire as tw
from tapewire.archive import day_logs
from tapewire.archive.day_logs import DayLog, OpenDayLogs
from tapewire.archive.record_columns import RecordColumns
from tapewire.archive.tree import Stream
from tapewire.bus import ArchiveLayout
from tapewire.clock import date_of
from tapewire.errors import StorageError


@pytest.fixture
def batch(tmp):
    with tw.open_publisher(tmp / "live", segment_bytes=1 << 20) as writer:
        writer.append_batch(0x2001, [b"a", b"b"])
    with tw.open_log(tmp / "live") as reader:
        yield reader.read_batch()


@pytest.mark.parametrize("way", ["another day takes its place", "it was idle"])
def test_a_log_that_cannot_be_synced_stays_open(tmp, batch, monkeypatch, way):
    logs = OpenDayLogs(ArchiveLayout(tmp / "archive"), 1 << 20, 1, close_after=-1.0)
    stream = Stream("okx", "BTC-USDT", "book")
    log = logs.get(stream, 20_000)
    log.append(RecordColumns.of_batch(batch))

    def fails(_):
        raise StorageError("no", path="archive", errno=28)

    with monkeypatch.context() as broken:
        broken.setattr(DayLog, "sync", fails)
        with pytest.raises(OSError, match="no"):
            _ = logs.get(stream, 20_001) if way.startswith("another") else logs.close_idle()
        with pytest.raises(OSError, match="no"):
            logs.sync()  # a commit must fail too
    logs.sync()
    assert not log.dirty
    logs.close()


def test_two_days_of_each_queue_may_be_open_within_the_descriptors(monkeypatch):
    allowed = 20_000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert day_logs.may_be_open(500) == 1000
    allowed = 1024  # a queue needs two, a log four
    open_logs = day_logs.may_be_open(100)
    assert 100 < open_logs <= (1024 - 2 * 100) // 4
    assert day_logs.may_be_open(500) == day_logs.LEAST_OPEN


def test_every_directory_above_a_log_is_synced_before_the_log_exists(tmp, monkeypatch):
    """Also those that a killed tap has created: it may not have synced them."""
    (tmp / "v1" / "okx").mkdir(parents=True)
    synced = []
    monkeypatch.setattr(day_logs, "sync", synced.append)
    logs = OpenDayLogs(ArchiveLayout(tmp), 65536, None, 60.0)
    for stream in ("trades", "book"):
        logs.get(Stream("okx", "BTCUSDT", stream), 0)
    logs.close()
    okx = tmp / "v1" / "okx"
    day = okx / "BTCUSDT" / "1970-01-01"
    assert synced == [tmp, tmp / "v1", okx, okx / "BTCUSDT", day, day]


def test_only_the_newest_days_are_read(tmp, monkeypatch):
    """However many years there are: a tap of hundreds of queues starts in seconds."""
    stream = Stream("okx", "BTCUSDT", "trades")
    layout = ArchiveLayout(tmp)
    for day in range(20):
        directory = stream.log(layout, date_of(day))
        directory.mkdir(parents=True)
        (directory / "control.meta").touch()
    looked = []
    log = ArchiveLayout.log
    monkeypatch.setattr(ArchiveLayout, "log", lambda *a: looked.append(a) or log(*a))
    newest = list(itertools.islice(stream.days(layout), 3))
    assert newest == [date_of(19), date_of(18), date_of(17)]
    assert len(looked) == 3
