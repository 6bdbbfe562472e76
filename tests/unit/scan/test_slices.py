"""Slices together are exactly the range, whatever happens to the log after they were planned."""

import datetime as dt
import random

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.config import WriterConfig
from tapewire.scan import slices as planning
from tapewire.scan.logs import resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.slices import Slice
from tapewire.spark.reading.tasks import Task, group_parts
from tests.golden.test_chronicle_rs import manifest, unpack
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.spark_views import read_by_reader, reader, rows, slices, table_of
from tests.support.taps import DAY_NS, MIDNIGHT_NS

COUNTS = [1, 2, 3, 16, 64]


def write(path, count, *, sparse=False, seed=1, **options):
    """Records of mixed sizes, types and unordered times over several segments."""
    options = {"segment_bytes": 65536, "index_stride": 16, "preallocate": False, **options}
    with tw.open_publisher(path, sparse=sparse, **options) as writer:
        append(writer, count, random.Random(seed), 0 if sparse else None)
    return path


def append(writer, count, rng, seq=None):
    for i in range(count):
        time = 1_000_000 + i * 1_000 + rng.randrange(-50_000, 50_000)
        payload = rng.randbytes(rng.choice([0, 1, 13, 64, 300]))
        seq = None
        if seq is not None:
            seq += rng.randrange(1, 40)
        writer.append(rng.randrange(4), payload, timestamp_ns=time, flags=0x100, seq=seq)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("partitions", COUNTS)
def test_the_rows_are_what_a_reader_reads(tmp, partitions, sparse):
    queue = write(tmp / "q", 3_000, sparse=sparse)
    assert rows(queue, partitions=partitions) == read_by_reader(queue)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_log_is_cut_into_as_many_slices_as_wanted(tmp, sparse):
    queue = write(tmp / "q", 3_000, sparse=sparse)
    found = slices(queue, partitions=16)
    assert len(found) == 16
    sizes = [len(table_of(reader(queue), [Task((part,))])) for part in found]
    assert min(sizes) > 100  # of 187 on average


def test_a_short_log_is_cut_though_its_index_has_one_entry(tmp):
    queue = write(tmp / "q", 100, index_stride=4096)
    assert len(slices(queue, partitions=4)) == 4
    assert rows(queue, partitions=4) == read_by_reader(queue)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(8))
def test_a_range_of_sequence_numbers_is_exact(tmp, seed, sparse):
    queue = write(tmp / "q", 1_000, sparse=sparse, seed=seed)
    rng = random.Random(seed)
    last = read_by_reader(queue)[-1][0]
    low, high = sorted(rng.randrange(last + 20) for _ in range(2))
    wanted = read_by_reader(queue, lambda record: low <= record.seq < high)
    for partitions in (1, 5):
        assert rows(queue, seq_from=low, seq_to=high, partitions=partitions) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_a_range_of_times_is_by_the_highest_time_so_far(tmp, seed):
    queue = write(tmp / "q", 1_000, seed=seed)
    rng = random.Random(seed)
    low, high = sorted(rng.randrange(900_000, 2_100_000) for _ in range(2))
    wanted, reached = [], 0
    for row in read_by_reader(queue):
        reached = max(reached, row[1])
        if low <= reached < high:
            wanted.append(row)
    for partitions in (1, 5):
        assert rows(queue, time_from=low, time_to=high, partitions=partitions) == wanted


@pytest.mark.parametrize("seed", range(4))
def test_sequence_numbers_and_times_together_narrow_the_range(tmp, seed):
    queue = write(tmp / "q", 1_000, seed=seed)
    both = rows(queue, time_from=1_300_000, time_to=1_800_000, seq_from=400, seq_to=600)
    times = rows(queue, time_from=1_300_000, time_to=1_800_000)
    assert both == [row for row in times if 400 <= row[0] < 600]
    assert both


@pytest.mark.parametrize("types", ["2", "0,3", "9"])
def test_types_are_selected_in_every_slice(tmp, types):
    queue = write(tmp / "q", 2_000)
    chosen = {int(text) for text in types.split(",")}
    wanted = read_by_reader(queue, lambda record: record.type_id in chosen)
    for partitions in (1, 16):
        assert rows(queue, types=types, partitions=partitions) == wanted


@pytest.mark.parametrize("partitions", [1, 16])
def test_records_appended_after_planning_are_in_no_slice(tmp, partitions):
    with tw.open_publisher(tmp / "q", segment_bytes=65536, index_stride=16) as writer:
        append(writer, 1_000, random.Random(1))
        before = read_by_reader(tmp / "q")
        planned = reader(tmp / "q", partitions=partitions)
        parts = planned.partitions()
        append(writer, 2_000, random.Random(2))
        assert writer.metrics()["rolls"] > 3
        found = table_of(planned, parts)
    assert found.column("seq").to_pylist() == [row[0] for row in before]
    assert found.column("payload").to_pylist() == [row[4] for row in before]


@pytest.mark.parametrize("partitions", [1, 16])
def test_records_retired_after_planning_are_an_error(tmp, partitions):
    queue = write(tmp / "q", 2_000)
    planned = reader(queue, partitions=partitions)
    parts = planned.partitions()
    (queue / "000000000.q").unlink()
    with pytest.raises(
        tw.SegmentMissing, match=r"first_wanted=0, first_available=.* \[.*/q\]; keep them with a"
    ):
        table_of(planned, parts)


def test_retired_records_are_skipped_if_asked(tmp, caplog):
    queue = write(tmp / "q", 2_000)
    planned = reader(queue, partitions=16, on_damage="skip")
    parts = planned.partitions()
    (queue / "000000000.q").unlink()
    found = table_of(planned, parts).column("seq").to_pylist()
    assert found == [row[0] for row in read_by_reader(queue)]
    assert "records were retired after the read was planned" in caplog.text


@pytest.mark.parametrize("partitions", [1, 16])
@pytest.mark.parametrize("name", ["basic", "dense", "restart", "torn"])
def test_queues_of_chronicle_rs_are_read_in_the_order_of_the_file(tmp, name, partitions):
    wanted = [(row.seq, row.timestamp_ns, row.type_id, row.payload) for row in manifest(name)]
    found = rows(unpack(name, tmp), partitions=partitions)
    assert [(seq, time, kind, data) for seq, time, kind, _, data in found] == wanted


def test_if_sequence_numbers_restart_a_range_selects_in_every_run(tmp):
    wanted = [row.seq for row in manifest("restart") if 50 <= row.seq < 60]
    found = rows(unpack("restart", tmp), seq_from=50, seq_to=60)
    assert [row[0] for row in found] == wanted
    assert len(wanted) == 30


def test_if_sequence_numbers_restart_times_are_a_range_of_the_file(tmp):
    every = manifest("restart")
    low, high = every[150].timestamp_ns, every[450].timestamp_ns
    wanted, reached = [], 0
    for row in every:
        reached = max(reached, row.timestamp_ns)
        if low <= reached < high:
            wanted.append(row.payload)
    found = rows(unpack("restart", tmp), time_from=low, time_to=high)
    assert [row[4] for row in found] == wanted
    assert 0 < len(wanted) < 600


@pytest.mark.parametrize("seed", range(4))
def test_if_sequence_numbers_restart_times_need_not_rise(tmp, seed):
    rng = random.Random(seed)
    times = [1_000 + i + rng.randrange(-20, 20) for i in range(120)]
    records = [
        qf.record(i % 50, b"x", timestamp_ns=time, checked=False) for i, time in enumerate(times)
    ]
    queue = crafted.write(tmp, records[:60], records[60:])
    wanted, reached = [], 0
    for time in times:
        reached = max(reached, time)
        if 1_030 <= reached < 1_090:
            wanted.append(time)
    assert [row[1] for row in rows(queue, time_from=1_030, time_to=1_090)] == wanted
    assert wanted != sorted(wanted)


def test_if_sequence_numbers_restart_later_records_are_in_no_slice(tmp):
    queue = unpack("restart", tmp)
    planned = reader(queue)
    parts = planned.partitions()
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"later")
    assert len(table_of(planned, parts)) == 600
    assert len(rows(queue)) == 601


def test_if_sequence_numbers_restart_retired_records_are_an_error(tmp):
    queue = unpack("restart", tmp)
    planned = reader(queue)
    parts = planned.partitions()
    min(queue.glob("*.q")).unlink()
    with pytest.raises(tw.SegmentMissing, match=r"records=600, missing=\d+"):
        table_of(planned, parts)


def test_an_empty_queue_has_no_slice(tmp):
    write(tmp / "q", 0)
    assert reader(tmp / "q").partitions() == []
    assert rows(tmp / "q") == []


def test_segments_without_records_are_skipped(tmp):
    # Prepared ahead, and empty.
    with tw.open_publisher(tmp / "q", segment_bytes=65536, preallocate=True) as writer:
        writer.append(1, b"x")
        assert len(rows(tmp / "q", partitions=4)) == 1


def test_a_range_without_records_has_no_slice(tmp):
    queue = write(tmp / "q", 100)
    assert slices(queue, seq_from=100) == []
    assert slices(queue, seq_from=7, seq_to=7) == []
    assert slices(queue, time_from=2**62) == []
    assert slices(queue, time_to=0) == []


def test_an_incorrect_seek_index_costs_slices_and_no_row(tmp):
    queue = write(tmp / "q", 2_000)
    for index in queue.glob("*.idx"):
        data = bytearray(index.read_bytes())
        for at in range(80, len(data) - 16, 24):
            data[at] ^= 0xFF
        index.write_bytes(data)
    for partitions in (4, 64):
        assert rows(queue, partitions=partitions) == read_by_reader(queue)


@pytest.mark.parametrize("content", [b"", b"CHRIDX1\0", b"\xff" * 4096])
def test_an_invalid_seek_index_is_not_used(tmp, content):
    queue = write(tmp / "q", 1_000)
    for index in queue.glob("*.idx"):
        index.write_bytes(content)
    assert rows(queue, partitions=16) == read_by_reader(queue)


def test_logs_share_the_slices_by_their_size(tmp):
    write(tmp / "bus" / "large", 3_000)
    write(tmp / "bus" / "small", 50)
    found = slices(tmp / "bus", partitions=8)
    counts = [sum(part.log.name == name for part in found) for name in ("large", "small")]
    assert counts == [8, 1]  # each log has at least one


def test_many_logs_are_packed_into_as_few_tasks_as_wanted(tmp):
    for i in range(12):
        write(tmp / "bus" / f"q{i:02}", 10)
    planned = reader(tmp / "bus", partitions=4)
    parts = planned.partitions()
    assert [len(task.parts) for task in parts] == [3, 3, 3, 3]
    assert len(table_of(planned, parts)) == 120


def part_of(size):
    return Slice(None, 0, 1, bytes=size)


@pytest.mark.parametrize("wanted", [1, 2, 5, 50])
def test_packing_keeps_every_part_in_order(wanted):
    parts = [part_of(size) for size in (5, 1, 1, 9, 0, 3, 40, 2)]
    packed = group_parts(parts, wanted)
    assert [part for each in packed for part in each.parts] == parts
    assert len(packed) <= wanted


def test_packing_makes_more_tasks_instead_of_huge_ones():
    assert len(group_parts([part_of(100) for _ in range(10)], 2, limit=200)) == 5


def archive_of_days(root, days, records=10):
    layout = bus.ArchiveLayout(root)
    for day in range(days):
        date = dt.date(2026, 1, 1) + dt.timedelta(days=day)
        config = WriterConfig.archive(sparse=True, segment_bytes=1 << 20)
        with tw.open_publisher(layout.log("okx", "BTCUSDT", date, "trades"), config=config) as log:
            for i in range(records):
                log.append(1, b"x", timestamp_ns=MIDNIGHT_NS + day * DAY_NS + i)


def test_only_days_in_the_time_range_are_opened(tmp, monkeypatch):
    archive_of_days(tmp, 6)
    opened = []
    watch = planning.QueueWatch
    monkeypatch.setattr(planning, "QueueWatch", lambda path: opened.append(path) or watch(path))
    asked = ReadOptions(
        time_from=MIDNIGHT_NS + 2 * DAY_NS + 5,
        time_to=MIDNIGHT_NS + 4 * DAY_NS,  # exclusive
    )
    found = planning.plan(resolve(str(tmp), asked), asked, 2)
    assert [(part.log.date, part.seq_from, part.seq_to) for part in found] == [
        ("2026-01-03", 5, 10),
        ("2026-01-04", 0, 10),
    ]
    assert len(opened) == 2


def test_a_small_day_does_not_count_as_a_full_segment(tmp):
    """Otherwise thousands of small days would be thousands of tasks."""
    archive_of_days(tmp, 3)
    options = ReadOptions()
    found = planning.plan(resolve(str(tmp), options), options, 1)
    assert all(1000 < part.bytes < 4096 for part in found)
