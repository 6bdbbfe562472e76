"""A tap archives every record of a live queue, unchanged, in the log of its day."""

import itertools
import shutil
import threading

import pytest

import tapewire as tw
from tapewire import archive, bus
from tapewire.archive.live_queue import LiveQueue
from tests.support.taps import (
    DAY_NS,
    MIDNIGHT_NS,
    TYPE,
    all_archived,
    archived,
    clean_queue,
    fill,
    records_of,
    run_once,
    write_numbered,
)


def test_records_keep_sequence_number_time_type_flags_and_payload(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 3000, segment_bytes=16384)
    report = run_once(tmp / "bus", tmp / "archive")
    log = "v1/okx/BTCUSDT/2026-01-01/trades"
    assert archived(tmp / "archive") == {log: records_of(queue)}
    assert report.records == 3000
    assert report.clean
    with tw.open_log(tmp / "archive" / log) as reader:
        assert reader.sparse


def test_a_queue_of_a_venue_goes_to_raw(tmp):
    queue = bus.Layout(tmp / "bus").streams.raw("okx")
    fill(queue, 10)
    run_once(queue, tmp / "archive")
    assert archived(tmp / "archive") == {"raw/v1/okx/2026-01-01/raw": records_of(queue)}


def test_a_path_that_does_not_name_its_stream_needs_options(tmp):
    fill(tmp / "somewhere", 10)
    with pytest.raises(tw.InvalidOption, match="does not name"):
        archive.tap(tmp / "somewhere", tmp / "archive")
    run_once(tmp / "somewhere", tmp / "archive", venue="okx", symbol="ETH-USDT", stream="book")
    assert list(archived(tmp / "archive")) == ["v1/okx/ETH-USDT/2026-01-01/book"]


@pytest.mark.parametrize(
    "names",
    [
        {"symbol": "BTCUSDT"},
        {"venue": "okx", "symbol": "BTCUSDT"},
        {"venue": "okx", "stream": "book"},
        {"venue": "../okx"},
        {"venue": "okx", "symbol": "..", "stream": "book"},
    ],
)
def test_names_that_name_no_log_are_refused(tmp, names):
    fill(tmp / "somewhere", 1)
    with pytest.raises((tw.InvalidOption, tw.InvalidName)):
        archive.tap(tmp / "somewhere", tmp / "archive", **names)


def test_two_queues_of_one_stream_are_refused(tmp):
    queues = [clean_queue(tmp / name) for name in ("one", "two")]
    for queue in queues:
        fill(queue, 1)
    with pytest.raises(tw.InvalidOption, match="same stream"):
        archive.tap(queues, tmp / "archive")


@pytest.mark.parametrize("there", [False, True])
def test_a_path_that_is_neither_a_queue_nor_a_bus_is_refused(tmp, there):
    if there:
        (tmp / "nothing").mkdir()
    with pytest.raises(tw.NotALog if there else FileNotFoundError):
        archive.tap(tmp / "nothing", tmp / "archive")


def test_midnight_and_late_records_go_to_their_own_days(tmp):
    queue = clean_queue(tmp / "bus")
    offsets = [-3, -2, 1, -1, 2, 3, -DAY_NS - 1, 4]  # of midnight, in the order of the queue
    with tw.open_publisher(queue, segment_bytes=65536) as writer:
        for offset in offsets:
            writer.append(TYPE, b"x", timestamp_ns=MIDNIGHT_NS + offset)
    run_once(tmp / "bus", tmp / "archive")
    days = {
        log.split("/")[3]: [r[0] for r in rows] for log, rows in archived(tmp / "archive").items()
    }
    assert days == {"2025-12-30": [6], "2025-12-31": [0, 1, 3], "2026-01-01": [2, 4, 5, 7]}
    assert archive.verify(tmp / "archive").intact


def test_the_second_run_continues_where_the_first_ended(tmp):
    queue = clean_queue(tmp / "bus")
    for _ in range(3):
        fill(queue, 100)
        report = run_once(tmp / "bus", tmp / "archive")
        assert (report.records, report.sources["okx/BTCUSDT/trades"].already) == (100, 0)
    assert run_once(tmp / "bus", tmp / "archive").records == 0
    assert all_archived(tmp / "archive") == records_of(queue)


def test_a_tap_without_its_position_repeats_nothing(tmp):
    """Its reader was removed: the archive itself shows what is archived."""
    queue = clean_queue(tmp / "bus")
    fill(queue, 500, step_ns=DAY_NS // 200)
    run_once(tmp / "bus", tmp / "archive")
    (queue / "readers" / "archive-tap.meta").unlink()
    fill(queue, 50, step_ns=DAY_NS // 200)
    report = run_once(tmp / "bus", tmp / "archive")
    assert (report.records, report.sources["okx/BTCUSDT/trades"].already) == (50, 500)
    assert all_archived(tmp / "archive") == records_of(queue)
    assert report.clean


def test_a_damaged_position_repeats_nothing_and_is_reported(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 500)
    run_once(tmp / "bus", tmp / "archive")
    meta = queue / "readers" / "archive-tap.meta"
    meta.write_bytes(b"\xff" * meta.stat().st_size)
    fill(queue, 50)
    report = run_once(tmp / "bus", tmp / "archive")
    assert report.records == 50
    assert "read again from its start" in report.findings[0]
    assert all_archived(tmp / "archive") == records_of(queue)


def test_a_following_tap_archives_new_records_and_new_queues(tmp, eventually, monkeypatch):
    monkeypatch.setattr("tapewire.archive.tapping.SCAN_SECONDS", 0.02)
    first, second = (clean_queue(tmp / "bus", symbol) for symbol in ("AAA", "BBB"))
    fill(first, 10)
    tap = archive.tap(tmp / "bus", tmp / "archive", flush=archive.Flush(seconds=0.01))
    thread = threading.Thread(target=tap.run)
    thread.start()
    try:
        eventually(lambda: tap.report.records == 10)
        fill(first, 10)
        fill(second, 5)
        eventually(lambda: tap.report.records == 25)
        for queue in (first, second):
            eventually(lambda q=queue: tw.queue.status(q).readers[0].lag_records == 0)
    finally:
        tap.stop()
        thread.join()
    assert archived(tmp / "archive") == {
        "v1/okx/AAA/2026-01-01/trades": records_of(first),
        "v1/okx/BBB/2026-01-01/trades": records_of(second),
    }


def test_the_same_archive_may_have_other_sources_next_time(tmp):
    queues = [clean_queue(tmp / "bus", symbol) for symbol in ("AAA", "BBB", "CCC")]
    for queue in queues:
        fill(queue, 100)
    run_once(queues[:2], tmp / "archive")
    for queue in queues:
        fill(queue, 100)
    report = run_once(queues[1:], tmp / "archive")
    assert report.records == 300
    assert run_once(tmp / "bus", tmp / "archive").records == 100
    kept = archived(tmp / "archive")
    for queue, symbol in zip(queues, ("AAA", "BBB", "CCC"), strict=True):
        assert kept[f"v1/okx/{symbol}/2026-01-01/trades"] == records_of(queue)


def test_the_number_of_open_logs_is_bounded(tmp):
    queues = [clean_queue(tmp / "bus", f"S{n}") for n in range(12)]
    for queue in queues:
        fill(queue, 40, step_ns=DAY_NS // 10)
    tap = archive.tap(tmp / "bus", tmp / "archive", max_open=3, segment_bytes=65536)
    most = []
    tap.run(follow=False, on_look=lambda _: most.append(len(tap._logs)))
    assert max(most) <= 3
    assert tap.report.records == 12 * 40
    assert archive.verify(tmp / "archive").records == 12 * 40
    assert len(tap.report.logs) == 12 * 4


def test_an_idle_log_is_closed_and_opened_again(tmp, eventually, monkeypatch):
    monkeypatch.setattr("tapewire.archive.tapping.SCAN_SECONDS", 0.01)
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    tap = archive.tap(queue, tmp / "archive", close_after=0.02)
    thread = threading.Thread(target=tap.run)
    thread.start()
    log = tmp / "archive/v1/okx/BTCUSDT/2026-01-01/trades"
    try:
        eventually(lambda: tap.report.records == 10 and not tw.queue.status(log).writer.alive)
        fill(queue, 10)
        eventually(lambda: tap.report.records == 20)
    finally:
        tap.stop()
        thread.join()
    assert records_of(log) == records_of(queue)


def test_a_second_tap_of_the_same_name_is_refused(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    with (
        tw.open_subscriber(queue, "archive-tap", pinned=True),
        pytest.raises(tw.ReaderAlreadyActive),
    ):
        run_once(tmp / "bus", tmp / "archive")


def test_a_second_tap_of_another_name_is_refused(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    run_once(tmp / "bus", tmp / "archive")
    fill(queue, 10)
    with (
        tw.open_publisher(tmp / "archive/v1/okx/BTCUSDT/2026-01-01/trades"),
        pytest.raises(tw.WriterAlreadyActive),
    ):
        run_once(queue, tmp / "archive", name="another")


def test_a_log_of_an_import_is_not_continued(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    fill(tmp / "archive/v1/okx/BTCUSDT/2026-01-01/trades", 1)
    with pytest.raises(tw.InvalidOption, match="not written by a tap"):
        run_once(queue, tmp / "archive")


def test_one_queue_that_cannot_be_archived_does_not_stop_the_others(tmp):
    for symbol in ("AAA", "BBB"):
        fill(clean_queue(tmp / "bus", symbol), 10)
    fill(tmp / "archive/v1/okx/AAA/2026-01-01/trades", 1)
    report = run_once(tmp / "bus", tmp / "archive")
    assert report.sources["okx/BBB/trades"].records == 10
    assert "not written by a tap" in report.sources["okx/AAA/trades"].error
    assert not report.clean


def test_the_second_of_two_buses_with_one_stream_is_skipped_and_reported(tmp):
    for name in ("one", "two"):
        fill(clean_queue(tmp / name), 10)
    report = run_once([tmp / "one", tmp / "two"], tmp / "archive")
    assert report.records == 10
    (reported,) = report.findings
    assert "two queues carry the same stream: okx/BTCUSDT/trades" in reported
    assert str(clean_queue(tmp / "two")) in reported


def test_a_queue_given_beside_its_bus_is_one_queue(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    report = run_once([queue, tmp / "bus", tmp / "bus" / ".." / "bus"], tmp / "archive")
    assert (report.records, report.clean) == (10, True)


def test_an_invalid_segment_size_is_reported_as_such(tmp):
    fill(clean_queue(tmp / "bus"), 10)
    report = run_once(tmp / "bus", tmp / "archive", segment_bytes=9000)
    assert "segment_bytes must be a multiple of 4096" in report.sources["okx/BTCUSDT/trades"].error


def test_one_queue_that_cannot_be_opened_does_not_stop_the_others(tmp):
    for symbol in ("AAA", "BBB"):
        fill(clean_queue(tmp / "bus", symbol), 10)
    (clean_queue(tmp / "bus", "AAA") / "control.meta").write_bytes(b"x")
    report = run_once(tmp / "bus", tmp / "archive")
    assert report.sources["okx/BBB/trades"].records == 10
    assert "control.meta must be" in report.sources["okx/AAA/trades"].error
    assert not report.clean


def test_a_run_to_the_end_ends_although_a_writer_keeps_appending(tmp, monkeypatch):
    queue = clean_queue(tmp / "bus")
    fill(queue, 10)
    read, reads = LiveQueue.read, itertools.count()
    with tw.open_publisher(queue) as writer:

        def read_and_write(live):
            batch = read(live)
            write_numbered(writer, 1)
            assert next(reads) < 100
            return batch

        monkeypatch.setattr(LiveQueue, "read", read_and_write)
        report = run_once(tmp / "bus", tmp / "archive")
        assert report.records == 10
        monkeypatch.undo()
        run_once(tmp / "bus", tmp / "archive")
    assert all_archived(tmp / "archive") == records_of(queue)


def test_two_archives_filled_in_turn_by_taps_of_one_name_are_both_complete(tmp):
    """The reader's position in the queue belongs to the other archive."""
    queue = clean_queue(tmp / "bus")
    for _ in range(2):
        for root in (tmp / "one", tmp / "two"):
            fill(queue, 50, segment_bytes=8192)
            assert run_once(tmp / "bus", root).clean
            assert all_archived(root) == records_of(queue)


def test_logs_that_an_archive_lost_are_filled_again_from_what_the_queue_still_has(tmp):
    queue = clean_queue(tmp / "bus")
    fill(queue, 50)
    run_once(tmp / "bus", tmp / "archive")
    shutil.rmtree(tmp / "archive/v1/okx/BTCUSDT/2026-01-01")
    fill(queue, 50)
    run_once(tmp / "bus", tmp / "archive")
    assert all_archived(tmp / "archive") == records_of(queue)


def test_a_record_that_fits_no_segment_is_refused_and_stays_in_the_queue(tmp):
    queue = clean_queue(tmp / "bus")
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        writer.append(TYPE, b"small", timestamp_ns=MIDNIGHT_NS)
        writer.append(TYPE, bytes(100_000), timestamp_ns=MIDNIGHT_NS + 1)
    with pytest.raises(tw.PayloadTooLarge, match="segment_bytes="):
        run_once(queue, tmp / "archive", segment_bytes=65536)
    (reader,) = tw.queue.status(queue).readers
    assert (reader.pinned, reader.lag_records) == (True, 2)


def test_commits_come_after_the_archive_is_durable(tmp, monkeypatch):
    """Nothing is committed while a sync fails."""
    queue = clean_queue(tmp / "bus")
    fill(queue, 100)

    def fails(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("tapewire.archive.day_logs.DayLog.sync", fails)
        with pytest.raises(OSError, match="Input/output"):
            run_once(queue, tmp / "archive")
    (reader,) = tw.queue.status(queue).readers
    assert reader.lag_records == 100
    report = run_once(queue, tmp / "archive")
    assert report.sources["okx/BTCUSDT/trades"].already == 100
    assert all_archived(tmp / "archive") == records_of(queue)
    (reader,) = tw.queue.status(queue).readers
    assert reader.lag_records == 0


def test_the_live_queue_retires_what_is_archived_and_no_more(tmp, eventually):
    queue = clean_queue(tmp / "bus")
    with tw.open_publisher(
        queue, segment_bytes=16384, retention=tw.Retention(reader_ttl=0.0)
    ) as writer:
        write_numbered(writer, 10)
        run_once(tmp / "bus", tmp / "archive")
        write_numbered(writer, 2000)
        assert writer.metrics()["rolls"] > 5
        assert tw.queue.status(queue).first_available_seq == 0, "pinned, though no tap runs"
        run_once(tmp / "bus", tmp / "archive")
        eventually(lambda: tw.queue.status(queue).first_available_seq > 1000)
    assert [record[0] for record in all_archived(tmp / "archive")] == list(range(2010))


def test_repr_has_the_archive_and_the_counts(tmp):
    fill(clean_queue(tmp / "bus"), 3)
    tap = archive.tap(tmp / "bus", tmp / "archive")
    tap.run(follow=False)
    assert "'archive-tap'" in repr(tap)
    assert "3 records" in repr(tap)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "a/b"},
        {"max_open": 0},
        {"segment_bytes": 1},
        {"close_after": -1},
        {"on_disk_full": "panic"},
        {"flush": 3},
    ],
)
def test_invalid_options_are_refused(tmp, options):
    fill(clean_queue(tmp / "bus"), 1)
    with pytest.raises((tw.InvalidOption, tw.InvalidName)):
        archive.tap(tmp / "bus", tmp / "archive", **options)
