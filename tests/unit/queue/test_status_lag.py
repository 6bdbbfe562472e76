"""Lag figures against a count of the files by the independent parser, on random logs."""

import random
import shutil

import pytest

import tapewire as tw
from tapewire.queue import QueueWatch, status
from tests.support import queue_format as qf
from tests.support.entries import BASE_NS


class Files:
    """The current content of the files, read completely."""

    def __init__(self, queue):
        self.records = []
        for segment in qf.segment_ids(queue):
            header, parsed = qf.parse_segment(qf.segment_path(queue, segment))
            records = [(segment, r) for r in parsed if not r.is_pad]
            if records:
                self.end = segment, parsed[-1].end  # PADs count as part of the distance
            self.records += records
        self.sparse = bool(header["flags"] & qf.SPARSE)
        self.segment_bytes = qf.segment_path(queue, 0).stat().st_size

    def lag(self, segment, offset):
        """(records, segments, bytes, seconds, next_seq) from a position on."""
        unread = [r for s, r in self.records if (s, r.end) > (segment, offset)]
        last = self.records[-1][1]
        if not unread:
            return 0, 0, 0, 0.0, None if self.sparse else last.seq + 1
        segments = self.end[0] - segment
        distance = segments * self.segment_bytes + self.end[1] - offset
        elapsed = max(0, last.timestamp_ns - unread[0].timestamp_ns) / 1e9
        return len(unread), segments, distance, elapsed, unread[0].seq


def check(seen, files):
    assert seen.problems == ()
    if not files.records:
        assert (seen.last_seq, seen.first_available_seq, seen.last_timestamp_ns) == (None,) * 3
        assert all(r.lag_records == 0 for r in seen.readers)
        return
    last = files.records[-1][1]
    assert (seen.last_seq, seen.last_timestamp_ns) == (last.seq, last.timestamp_ns)
    assert seen.first_available_seq == files.records[0][1].seq
    assert (seen.end_segment, seen.end_offset) == files.end
    for r in seen.readers:
        got = r.lag_records, r.lag_segments, r.lag_bytes, r.lag_seconds, r.next_seq
        assert got == files.lag(r.segment, r.offset), r.name


# Small segments are counted by walking only, large ones from the seek index.
@pytest.mark.parametrize(
    ("segment_bytes", "largest", "stride", "sparse"),
    [(8192, 900, 4096, False), (1 << 18, 3000, 3, False), (1 << 18, 3000, 5, True)],
)
@pytest.mark.parametrize("seed", range(3))
def test_lags_of_random_appends_rolls_reopenings_and_commits_equal_a_count(
    tmp, segment_bytes, largest, stride, sparse, seed
):
    dice = random.Random(seed)
    queue = tmp / "q"
    options = {"segment_bytes": segment_bytes, "index_stride": stride, "sparse": sparse}
    writer = tw.open_publisher(queue, **options)
    watch = QueueWatch(queue)
    readers = {}
    time = BASE_NS
    for _ in range(20):
        for _ in range(dice.choice([0, 1, 7, 60])):
            time += dice.randrange(-2, 10)  # may decrease
            seq = writer.next_seq + dice.randrange(3) if sparse else None
            writer.append(1, bytes(dice.randrange(largest)), timestamp_ns=time, seq=seq)
        for name in "abc":
            if name not in readers and dice.random() < 0.3:
                readers[name] = tw.open_subscriber(queue, name)
            elif name in readers and dice.random() < 0.1:
                readers.pop(name).close()
            elif name in readers and dice.random() < 0.5:
                readers[name].read_batch(dice.choice([1, 5, 50]))
                readers[name].commit()
            elif name in readers and dice.random() < 0.1:
                readers[name].seek_start()
                readers[name].commit()
        if dice.random() < 0.1:
            writer.close()
            writer = tw.open_publisher(queue, **options)
        files = Files(queue)
        check(status(queue), files)
        check(watch.look(), files)
    assert len(files.records) > 200
    for handle in (*readers.values(), writer):
        handle.close()


@pytest.mark.parametrize("seed", range(8))
def test_pads_gaps_and_restarts_are_counted_correctly(tmp, seed):
    dice = random.Random(seed)
    seq, segments = 0, []
    for _ in range(4):
        items, room = [], 8192 - 64
        while room >= 64 and dice.random() < 0.95:
            size = min(64 * dice.randrange(1, 12), room)
            if dice.random() < 0.2:
                items.append(qf.pad(size))
            else:
                items.append(qf.record(seq, bytes(size - 64), checked=seed % 2 == 0))
                seq = 0 if seed % 2 and dice.random() < 0.05 else seq + dice.choice([1, 1, 1, 5])
            room -= size
        segments.append(items)
    queue = qf.write_queue(tmp / "q", segments)
    (queue / "readers").mkdir()
    for segment, items in enumerate(segments):
        place = 64
        for n, item in enumerate([*items, b""]):
            slot = qf.reader_slot(segment, place, 1)
            (queue / "readers" / f"r{segment}-{n}.meta").write_bytes(qf.reader_meta(slot))
            place += len(item)
    seen = status(queue)
    assert len(seen.readers) == sum(map(len, segments)) + 4
    check(seen, Files(queue))


def test_a_watch_sees_a_queue_that_was_removed_and_created_again(tmp):
    watch = QueueWatch(tmp / "q")
    for count in (500, 3, 700):
        with (
            tw.open_publisher(tmp / "q", segment_bytes=8192) as writer,
            tw.open_subscriber(tmp / "q", "r") as reader,
        ):
            writer.append_batch(1, [bytes(count % 64)] * count)
            reader.read_batch(2)
            reader.commit()
            seen = watch.look()
            assert (seen.last_seq, seen.readers[0].lag_records) == (count - 1, count - 2)
        shutil.rmtree(tmp / "q")


def test_lag_is_0_at_the_end_of_a_sealed_last_segment(tmp):
    queue = qf.write_queue(tmp / "q", [[qf.record(0)], []])
    (queue / "readers").mkdir()
    (queue / "readers" / "r.meta").write_bytes(qf.reader_meta(qf.reader_slot(0, 128, 1)))
    (reader,) = status(queue).readers
    assert (reader.lag_records, reader.lag_bytes, reader.lag_segments) == (0, 0, 0)
    assert reader.next_seq == 1


def test_lag_is_0_before_a_pad_at_the_end(tmp):
    queue = qf.write_queue(tmp / "q", [[qf.record(0), qf.pad(640)], [qf.pad(128)]])
    (queue / "readers").mkdir()
    (queue / "readers" / "r.meta").write_bytes(qf.reader_meta(qf.reader_slot(0, 128, 1)))
    seen = status(queue)
    assert (seen.end_segment, seen.end_offset) == (0, 64 + 64 + 640)
    (reader,) = seen.readers
    assert (reader.lag_records, reader.lag_bytes, reader.lag_segments) == (0, 0, 0)
    assert reader.next_seq == 1


def test_a_reader_whose_segment_is_gone_has_no_lag_in_records_and_a_reason(tmp):
    queue = qf.write_queue(tmp / "q", [[qf.record(0)], [qf.record(1)], [qf.record(2)]])
    (queue / "readers").mkdir()
    (queue / "readers" / "r.meta").write_bytes(qf.reader_meta(qf.reader_slot(0, 64, 1)))
    qf.segment_path(queue, 0).unlink()
    seen = status(queue)
    assert seen.readers[0].lag_records is None
    assert seen.readers[0].lag_bytes == 2 * 8192 + 64
    (line,) = seen.problems
    assert "reader 'r'" in line
    assert "segment is missing" in line
