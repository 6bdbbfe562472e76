import pytest

import tapewire as tw
from tapewire.archive.day_log import DayLog, Shelf
from tapewire.archive.tree import Stream
from tapewire.bus import ArchiveLayout
from tapewire.errors import StorageError


@pytest.fixture
def batch(tmp):
    with tw.open_publisher(tmp / "live", segment_bytes=1 << 20) as writer:
        writer.append_batch(0x2001, [b"a", b"b"])
    with tw.open_log(tmp / "live") as reader:
        yield reader.read_batch()


@pytest.mark.parametrize("way", ["another day takes its place", "it was idle"])
def test_a_log_that_cannot_be_made_durable_stays_until_it_is(tmp, batch, monkeypatch, way):
    shelf = Shelf(ArchiveLayout(tmp / "archive"), 1 << 20, 1, close_after=-1.0)
    stream = Stream("okx", "BTC-USDT", "book")
    log = shelf.get(stream, 20_000)
    log.append(batch)

    def fails(_):
        raise StorageError("no", path="archive", errno=28)

    with monkeypatch.context() as broken:
        broken.setattr(DayLog, "sync", fails)
        with pytest.raises(OSError, match="no"):
            _ = shelf.get(stream, 20_001) if way.startswith("another") else shelf.close_idle()
        with pytest.raises(OSError, match="no"):
            shelf.sync()  # what a commit relies on
    shelf.sync()
    assert not log.dirty
    shelf.close()
