"""The framework: days, logs, jobs, options; with artificial captures."""

import gzip
import json
import os
import zipfile

import pytest

import tapewire as tw
from tapewire import ingest
from tapewire.errors import ConcurrentUse, CorruptMetadata, CorruptSource, InvalidOption
from tapewire.ingest.import_log import SEGMENT_BYTES
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import TRADE_TICK, VENUE_RAW
from tests.support.captures import (
    MIDNIGHT_NS,
    capture_line,
    content_of,
    futures_lines,
    logs_of,
    snapshot_line,
    without_losses,
    write_capture,
)
from tests.support.venue_files import MAKERS

FORMAT = "binance-usdm"
DAY_1, DAY_2 = "v1/binance_usdm/AAA/2023-11-14", "v1/binance_usdm/AAA/2023-11-15"


def trade(time_ns, number=1, symbol="AAA"):
    data = {"e": "trade", "s": symbol, "t": number, "T": 5, "p": "1.5", "q": "2", "m": True}
    return capture_line(time_ns, {"data": data})


def diff(time_ns, previous, last, bids, symbol="AAA"):
    data = {"e": "depthUpdate", "s": symbol, "U": previous + 1, "u": last, "pu": previous}
    return capture_line(time_ns, {"data": data | {"b": bids, "a": [], "T": 5}})


def test_records_go_to_the_log_of_their_utc_day(import_lines):
    lines = [trade(MIDNIGHT_NS - 1, 1), trade(MIDNIGHT_NS, 2), trade(MIDNIGHT_NS + 1, 3)]
    _, content = import_lines(FORMAT, lines)
    assert [row[:3] for row in content[f"{DAY_1}/trades"]] == [(0, MIDNIGHT_NS - 1, TRADE_TICK)]
    assert [row[0] for row in content[f"{DAY_2}/trades"]] == [0, 1]


def test_a_later_import_appends_to_an_earlier_one(tmp):
    for name in ("a", "b"):
        (tmp / name).write_bytes(trade(MIDNIGHT_NS, ord(name)) + b"\n")
        ingest.run(FORMAT, [tmp / name], tmp / "archive")
    content = content_of(tmp / "archive")
    assert [row[0] for row in content[f"{DAY_2}/trades"]] == [0, 1]


def test_the_messages_of_a_log_are_in_its_types_file(import_lines, tmp):
    import_lines(FORMAT, [trade(MIDNIGHT_NS)])
    types = json.loads((tmp / "archive" / DAY_2 / "trades" / "types.json").read_bytes())
    assert [entry["name"] for entry in types["types"]] == ["TradeTick"]


def test_a_finished_import_is_not_done_again(import_lines):
    first, before = import_lines(FORMAT, [trade(MIDNIGHT_NS)])
    again, after = import_lines(FORMAT, [trade(MIDNIGHT_NS)])
    assert (first.already, again.already) == (False, True)
    assert again.records == first.records
    assert before == after


def test_other_options_are_another_import(import_lines):
    lines = [trade(MIDNIGHT_NS, symbol="AAA"), trade(MIDNIGHT_NS, symbol="BBB")]
    import_lines(FORMAT, lines, symbols=["BBB"])
    summary, content = import_lines(FORMAT, lines, symbols=["AAA"], keep_wire=True)
    assert not summary.already
    ((_, _, type_id, payload),) = content[f"{DAY_2}/raw"]
    assert (type_id, payload) == (VENUE_RAW, lines[0].partition(b" ")[2])


def test_a_file_is_not_imported_into_a_log_again(tmp):
    """Also not as one of several files: its records would be duplicated."""
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS, 1))
    (tmp / "b").write_bytes(trade(MIDNIGHT_NS, 2))
    ingest.run(FORMAT, [tmp / "a"], tmp / "archive")
    before = content_of(tmp / "archive")
    with pytest.raises(
        InvalidOption, match=r"the records of this file are already in the log: file='a'"
    ):
        ingest.run(FORMAT, [tmp / "a", tmp / "b"], tmp / "archive")
    assert content_of(tmp / "archive") | before == content_of(tmp / "archive")
    ingest.run(FORMAT, [tmp / "b"], tmp / "archive")
    assert len(content_of(tmp / "archive")[f"{DAY_2}/trades"]) == 2


def test_a_file_given_twice_is_refused(tmp):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    (tmp / "b").write_bytes(trade(MIDNIGHT_NS))
    for files in (["a", "a"], ["a", "b"]):
        with pytest.raises(InvalidOption, match="two files have the same content"):
            ingest.run(FORMAT, [tmp / name for name in files], tmp / "archive")


def test_members_of_one_zip_are_separate_files(tmp):
    with zipfile.ZipFile(tmp / "both.zip", "w") as archive:
        archive.writestr("a", trade(MIDNIGHT_NS, 1))
        archive.writestr("b", trade(MIDNIGHT_NS, 2))
    ingest.run(FORMAT, [tmp / "both.zip!a"], tmp / "archive")
    ingest.run(FORMAT, [tmp / "both.zip!b"], tmp / "archive")
    ingest.run(FORMAT, [tmp / "both.zip!a", tmp / "both.zip!b"], tmp / "together")
    for archive in ("archive", "together"):
        assert len(content_of(tmp / archive)[f"{DAY_2}/trades"]) == 2


def test_only_symbols_that_were_asked_for_are_imported(import_lines):
    lines = [trade(MIDNIGHT_NS, symbol="AAA"), trade(MIDNIGHT_NS, symbol="BBB")]
    summary, _ = import_lines(FORMAT, lines, symbols=["BBB"])
    assert list(summary.logs) == ["v1/binance_usdm/BBB/2023-11-15/trades"]
    assert summary.skipped == {"another symbol": 1}


def test_instruments_are_stored_at_the_root(import_lines, tmp):
    import_lines(FORMAT, [trade(MIDNIGHT_NS)], price_scale=2, size_scale=3)
    instrument = Instruments.load(tmp / "archive" / DAY_2 / "trades").find("AAA")
    assert (instrument.venue, instrument.price_scale, instrument.size_scale) == (
        "binance_usdm",
        2,
        3,
    )


def test_a_new_day_of_a_book_begins_with_a_snapshot_of_it(import_lines, tmp):
    lines = [
        snapshot_line(MIDNIGHT_NS - 9, 5, [["1", "1"], ["2", "2"]], [["3", "3"]], "AAA"),
        diff(MIDNIGHT_NS - 8, 5, 7, [["1", "0"], ["2", "4"]]),
        diff(MIDNIGHT_NS + 6, 7, 9, [["2", "5"]]),
    ]
    summary, content = import_lines(FORMAT, lines, price_scale=0, size_scale=0)
    assert len(content[f"{DAY_2}/book"]) == 2
    with tw.open_log(tmp / "archive" / DAY_2 / "book") as log:
        event = log.next().decode()
    assert (event.event_type, event.native_seq, event.ingest_ts_ns) == (1, 7, MIDNIGHT_NS + 6)
    assert event.bids.tolist() == [(2, 4)]
    assert event.asks.tolist() == [(3, 3)]
    assert summary.clean


def test_a_new_day_of_an_untrusted_book_begins_without_a_snapshot(import_lines):
    lines = [diff(MIDNIGHT_NS - 8, 5, 7, []), diff(MIDNIGHT_NS, 7, 9, [])]
    summary, content = import_lines(FORMAT, lines)
    assert len(content[f"{DAY_2}/book"]) == 1
    assert list(summary.untrusted) == ["binance_usdm/AAA/book"]
    assert not summary.clean


def test_a_truncated_file_is_imported_up_to_the_damage_and_named(tmp):
    complete = gzip.compress(b"\n".join(futures_lines(9_000, bad_every=0)))
    (tmp / "cut.gz").write_bytes(complete[: len(complete) * 2 // 3])
    with pytest.raises(CorruptSource, match=r"cut\.gz"):
        ingest.run(FORMAT, [tmp / "cut.gz"], tmp / "archive")
    (tmp / "complete.gz").write_bytes(complete)
    ingest.run(FORMAT, [tmp / "complete.gz"], tmp / "expected")
    expected, cut = content_of(tmp / "expected"), content_of(tmp / "archive")
    counts, marked = 0, set()
    for name in logs_of(tmp / "archive"):
        kept = without_losses(cut[name])
        assert kept == expected[name][: len(kept)]
        if len(kept) < len(cut[name]):
            marked.add(name.split("/")[2])
        counts += len(kept)
    assert marked == {name.split("/")[2] for name in logs_of(tmp / "archive")}, "each book's end"
    assert counts > 4_000


def test_an_import_into_a_log_with_an_unfinished_one_is_refused(tmp):
    complete = gzip.compress(b"\n".join(futures_lines(3000)))
    (tmp / "cut.gz").write_bytes(complete[: len(complete) // 2])
    with pytest.raises(CorruptSource):
        ingest.run(FORMAT, [tmp / "cut.gz"], tmp / "archive")
    (tmp / "complete.gz").write_bytes(complete)
    with pytest.raises(ConcurrentUse, match="another import is unfinished in this log"):
        ingest.run(FORMAT, [tmp / "complete.gz"], tmp / "archive")


def test_a_log_that_holds_other_records_is_not_continued(tmp):
    complete = gzip.compress(b"\n".join(futures_lines(3000)))
    (tmp / "cut.gz").write_bytes(complete[: len(complete) // 2])
    with pytest.raises(CorruptSource):
        ingest.run(FORMAT, [tmp / "cut.gz"], tmp / "archive")
    (log,) = (
        directory
        for name, directory in logs_of(tmp / "archive").items()
        if name.endswith("AAA/2023-11-14/trades")
    )
    for path in log.iterdir():
        path.unlink()
    with tw.open_publisher(log, segment_bytes=1 << 20) as writer:
        writer.append(0x2000, b"another process's", timestamp_ns=1)
    with pytest.raises(CorruptMetadata, match="the log holds other records"):
        ingest.run(FORMAT, [tmp / "cut.gz"], tmp / "archive")


def test_records_after_those_of_a_killed_import_are_not_taken_for_its_own(tmp):
    """The job is at its end, and the log continues."""
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    job = ingest.run(FORMAT, [tmp / "a"], tmp / "archive").job
    path = tmp / "archive" / "imports" / f"{job}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "running"}))
    with tw.open_publisher(tmp / "archive" / DAY_2 / "trades") as writer:
        writer.append(0x2000, b"another process's", timestamp_ns=1)
    with pytest.raises(CorruptMetadata, match="more records than this import writes"):
        ingest.run(FORMAT, [tmp / "a"], tmp / "archive")


def test_a_log_whose_creation_was_killed_still_gets_small_segments(tmp):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    (tmp / "archive" / DAY_2 / "trades").mkdir(parents=True)
    ingest.run(FORMAT, [tmp / "a"], tmp / "archive")
    (segment,) = (tmp / "archive" / DAY_2 / "trades").glob("*.q")
    assert segment.stat().st_size == SEGMENT_BYTES


def test_an_archive_inside_another_has_its_own_instruments(tmp):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS, 1))
    ingest.run(FORMAT, [tmp / "a"], tmp / "outer", price_scale=2)
    ingest.run(FORMAT, [tmp / "a"], tmp / "outer" / "inner", price_scale=5)
    inner = Instruments.load(tmp / "outer" / "inner")
    assert inner.find("AAA").price_scale == 5


def test_a_file_that_is_written_to_is_imported_as_it_was_at_the_start(tmp):
    """Later bytes are not in the file's hash, and so not in this import."""
    path = tmp / "a"
    path.write_bytes(trade(MIDNIGHT_NS, 1) + b"\n")
    source = ingest.SourceFile(path)
    before = source.digest()
    with path.open("ab") as file:
        file.write(trade(MIDNIGHT_NS, 2) + b"\n")
    assert source.digest() == before
    assert [line for _, line in source.lines()] == [trade(MIDNIGHT_NS, 1)]


@pytest.mark.parametrize("how", ["rewritten", "replaced", "cut"])
def test_a_file_that_has_changed_is_named(tmp, how):
    path = tmp / "a"
    path.write_bytes(b"one\ntwo\n")
    source = ingest.SourceFile(path)
    if how == "replaced":
        (tmp / "b").write_bytes(b"one\ntwo\n")
        (tmp / "b").rename(path)
    else:
        path.write_bytes(b"two\none\n" if how == "rewritten" else b"one\n")
        os.utime(path, ns=(1, 1))
    with pytest.raises(CorruptSource, match="has changed since"):
        list(source.lines())


def test_instruments_added_together_are_saved_together(tmp, monkeypatch):
    """A market has thousands: an import must not write the file for each."""
    saves = []
    save = Instruments.save
    monkeypatch.setattr(Instruments, "save", lambda self, at: (saves.append(1), save(self, at)))
    files, options = MAKERS["itch"](tmp, 500)
    summary = ingest.run("itch", files, tmp / "archive", **options)
    assert len({name.split("/")[2] for name in summary.logs}) > 1
    assert saves == [1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"format": "tapewire-import"}',
        b"[" * 100_000,
        b'{"format":"tapewire-import","version":1,"importer":"x","options":{},"files":[],'
        b'"state":"done","logs":{"../../etc":0},"summary":{}}',
        b'{"format":"tapewire-import","version":1,"importer":"x","options":{},"files":[],'
        b'"state":"done","logs":{"v1/a":-1},"summary":{}}',
        b'{"format":"tapewire-import","version":1,"importer":"x","options":{},"files":[],'
        b'"state":"asleep","logs":{},"summary":{}}',
        b'{"format":"tapewire-import","version":1,"importer":"x","options":{},"files":[],'
        b'"state":"done","logs":{},"summary":{}}',
    ],
)
def test_a_hostile_job_file_is_refused_by_name(tmp, text):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    job = ingest.run(FORMAT, [tmp / "a"], tmp / "archive").job
    (tmp / "archive" / "imports" / f"{job}.json").write_bytes(text)
    with pytest.raises(CorruptMetadata, match=job):
        ingest.run(FORMAT, [tmp / "a"], tmp / "archive")


def test_an_invalid_summary_is_refused(tmp):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    job = ingest.run(FORMAT, [tmp / "a"], tmp / "archive").job
    path = tmp / "archive" / "imports" / f"{job}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"summary": {"rows": "many"}}))
    with pytest.raises(CorruptMetadata, match="not a summary"):
        ingest.run(FORMAT, [tmp / "a"], tmp / "archive")


def test_a_job_is_used_by_one_process_at_a_time(tmp):
    (tmp / "a").write_bytes(trade(MIDNIGHT_NS))
    refused = []

    def second(_):
        with pytest.raises(ConcurrentUse, match="another process is importing"):
            ingest.run(FORMAT, [tmp / "a"], tmp / "archive")
        refused.append(True)

    ingest.run(FORMAT, [tmp / "a"], tmp / "archive", progress=second)
    assert refused == [True]


def test_more_logs_than_may_be_open_are_written_in_turn(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.chunk_writer.MAX_OPEN", 2)
    monkeypatch.setattr("tapewire.ingest.pending.FULL_RECORDS", 50)
    capture = write_capture(tmp / "a.gz", futures_lines(1000))
    ingest.run(FORMAT, [capture], tmp / "few")
    monkeypatch.undo()
    ingest.run(FORMAT, [capture], tmp / "many")
    assert content_of(tmp / "few") == content_of(tmp / "many")


def test_the_number_of_open_files_is_bounded(tmp, monkeypatch):
    """A capture of a complete market has thousands of books, and each reads its log."""
    monkeypatch.setattr("tapewire.ingest.chunk_writer.MAX_OPEN", 2)
    lines = [snapshot_line(MIDNIGHT_NS, 5, [["1", "1"]], [["3", "3"]], f"S{i}") for i in range(30)]
    capture = write_capture(tmp / "a.gz", lines)
    before = len(os.listdir("/proc/self/fd"))
    most = []
    ingest.run(
        FORMAT,
        [capture],
        tmp / "archive",
        progress=lambda _: most.append(len(os.listdir("/proc/self/fd"))),
    )
    assert len(most) == 30
    assert max(most) - before < 30


def test_progress_rises_to_the_total(tmp):
    capture = write_capture(tmp / "a.gz", futures_lines(10_000))
    progress = []
    summary = ingest.run(FORMAT, [capture], tmp / "archive", progress=progress.append)
    assert [at.records for at in progress] == sorted(at.records for at in progress)
    assert progress[-1].records == summary.records
    assert progress[-1].read_bytes == progress[-1].total_bytes == capture.stat().st_size


def test_everything_is_private(tmp):
    ingest.run(FORMAT, [write_capture(tmp / "a.gz", futures_lines(100))], tmp / "archive")
    for path in (tmp / "archive").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("unknown", {}, "no such importer"),
        (FORMAT, {"colour": 1}, "no such option"),
        (FORMAT, {"price_scale": 19}, "price_scale must be from 0 to 18"),
        (FORMAT, {"symbols": "AAA"}, "symbols must be a sequence"),
    ],
)
def test_invalid_options_are_refused_by_name(tmp, format, options, message):
    (tmp / "a").write_bytes(b"")
    with pytest.raises(InvalidOption, match=message):
        ingest.run(format, [tmp / "a"], tmp / "archive", **options)


def test_nothing_to_import_is_refused(tmp):
    with pytest.raises(InvalidOption, match="nothing to import"):
        ingest.run(FORMAT, [], tmp / "archive")
