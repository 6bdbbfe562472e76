"""The job `features`: every value equals its definition; each day is written once."""

import struct
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire import replay
from tapewire import spark as tws
from tapewire.bus import ArchiveLayout
from tapewire.errors import InvalidOption, NotALog
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.feature_tapes import TapeWriter, random_tape
from tests.support.plain_features import SECOND, PlainFeatures

MIDNIGHT = 1_700_006_400 * SECOND  # 2023-11-15T00:00Z
DAYS = ("2023-11-14", "2023-11-15")
NAMES = ["mid", "spread_bps", "imbalance3", "ofi", "trade_flow_5s", "vwap_5s", "time_since_trade"]


def write_archive(root, symbols=("AAA", "BBB"), count=400):
    """Events of symbols over midnight, with snapshots; ``{symbol: events}``."""
    tapes, known = {}, []
    root.mkdir(exist_ok=True)
    for seed, symbol in enumerate(symbols):
        one = Instrument.of("venue", symbol, price_scale=2, size_scale=3)
        known.append(one)
        tape = random_tape(seed, count, start=MIDNIGHT - 30 * SECOND)
        clock, even = 0, []
        for event in tape:  # times do not decrease, because an archive is cut by time
            clock = max(clock, event.time)
            even.append(replace(event, time=clock))
        # At equal times, the log of the book is read before that of the trades.
        tapes[symbol] = sorted(even, key=lambda event: (event.time, event.kind == "trade"))
        append(root, one, tapes[symbol])
    Instruments(known).save(root)
    return tapes


def append(root, one, tape):
    payloads = TapeWriter(root.parent / "unused", one)
    writers = {}
    for event in tape:
        type_id, payload = payloads.payload(event)
        stream = "trades" if event.kind == "trade" else "book"
        path = ArchiveLayout(root).log(one.venue, one.symbol, day_of(event.time), stream)
        if path not in writers:
            writers[path] = tw.open_publisher(path, segment_bytes=1 << 20)
        writers[path].append(type_id, payload, timestamp_ns=event.time)
    for path, writer in writers.items():
        writer.close()
        if path.name == "book":
            every = replay.Every(seconds=None, records=30)
            replay.Snapshotter(path, every=every, keep=None).run(follow=False)


def day_of(time_ns):
    return DAYS[time_ns >= MIDNIGHT]


def bits(value):
    return None if value is None else struct.pack("<d", value)


def files_of(target, symbol="*", date="*"):
    return sorted(target.glob(f"venue=venue/date={date}/symbol={symbol}/*.parquet"))


def rows_in(files):
    """The rows of all files, in the order of their first times."""
    tables = [pq.ParquetFile(file).read() for file in files]
    tables = sorted((t for t in tables if t.num_rows), key=lambda t: t["timestamp_ns"][0].as_py())
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("sample", ["event", "100ms"])
def test_every_value_equals_its_definition(spark, tmp, sample):
    tapes = write_archive(tmp / "clean")
    summary = tws.jobs.features(
        spark, tmp / "clean", tmp / "out", names=NAMES, sample=sample, plots=0
    )
    total = 0
    for symbol, tape in tapes.items():
        want = PlainFeatures(tape, 2, 3).rows(NAMES, sample)
        for date in DAYS:
            got = rows_in(files_of(tmp / "out", symbol, date))
            plain = [row for row in want if day_of(row[0]) == date]
            assert len(got) == len(plain) > 40
            total += len(got)
            for row, values in zip(got, plain, strict=True):
                assert row["timestamp_ns"] == values[0]
                for name, value in zip(NAMES, values[1:], strict=True):
                    assert bits(row[name]) == bits(value), (symbol, values[0], name)
    assert (summary.done, summary.rows, summary.exit_code) == (4, total, 0)


def test_a_day_is_cut_for_many_tasks_and_every_file_is_in_order_of_time(spark, tmp):
    write_archive(tmp / "clean", ["AAA"])
    tws.jobs.features(spark, tmp / "clean", tmp / "out", names=["mid"], sample="10ms", plots=0)
    files = files_of(tmp / "out", "AAA")
    assert len(files) > len(DAYS)
    for file in files:
        times = pq.ParquetFile(file).read()["timestamp_ns"].to_pylist()
        assert times == sorted(times)


@pytest.mark.long  # docs/howto/bars-and-features.md does the same
def test_spark_polars_and_duckdb_read_the_same_table(spark, tmp):
    import duckdb
    import polars as pl

    write_archive(tmp / "clean", ["AAA"])
    tws.jobs.features(spark, tmp / "clean", tmp / "out", names=["mid"], sample="1s", plots=0)
    frame = spark.read.parquet(str(tmp / "out"))
    assert set(frame.columns) == {"timestamp_ns", "timestamp", "mid", "venue", "date", "symbol"}
    count = frame.count()
    where = f"{tmp}/out/venue=*/**/*.parquet"
    assert pl.scan_parquet(where).select(pl.len()).collect().item() == count > 30
    assert duckdb.sql(f"select count(*) from '{where}'").fetchall() == [(count,)]


def test_a_day_is_done_again_only_if_it_has_changed(spark, tmp):
    tapes = write_archive(tmp / "clean", ["AAA"])
    options = {"names": ["mid", "ofi"], "sample": "100ms", "plots": 0}
    first = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    before = {file: file.stat().st_mtime_ns for file in files_of(tmp / "out")}
    again = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    assert (first.done, again.done, again.skipped, again.rows) == (2, 0, 2, 0)
    assert {file: file.stat().st_mtime_ns for file in files_of(tmp / "out")} == before
    # One more trade on the second day: that day is computed again and replaced.
    one = Instruments.load(tmp / "clean").find("AAA")
    end = tapes["AAA"][-1].time + 3 * SECOND
    late = replace(next(e for e in tapes["AAA"] if e.kind == "trade"), time=end)
    append(tmp / "clean", one, [late])
    third = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    assert (third.done, third.skipped) == (1, 1)
    times = [row["timestamp_ns"] for row in rows_in(files_of(tmp / "out"))]
    assert len(times) == len(set(times))
    assert max(times) == end // (SECOND // 10) * (SECOND // 10)
    other = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options | {"sample": "1s"})
    assert other.done == 2


def test_a_run_that_fails_half_way_is_resumed(spark, tmp, monkeypatch):
    from tapewire.spark.jobs import day_tables

    write_archive(tmp / "clean")
    options = {"names": ["mid"], "sample": "1s", "plots": 0}
    publish, count = day_tables._publish, iter(range(10))

    def fail_at_the_third(*args):
        if next(count) == 2:
            raise OSError(28, "No space left on device")
        return publish(*args)

    monkeypatch.setattr(day_tables, "_publish", fail_at_the_third)
    with pytest.raises(OSError, match="No space"):
        tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    monkeypatch.undo()
    rest = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    assert (rest.done, rest.skipped) == (2, 2)
    tws.jobs.features(spark, tmp / "clean", tmp / "at-once", **options)
    for file_of in [("AAA", day) for day in DAYS] + [("BBB", day) for day in DAYS]:
        got = rows_in(files_of(tmp / "out", *file_of))
        assert got == rows_in(files_of(tmp / "at-once", *file_of))
    left = list((tmp / "out" / "_tapewire" / "features").iterdir())
    assert left == []


def test_the_report_shows_book_spread_and_every_feature_and_fetches_nothing(spark, tmp):
    import re

    write_archive(tmp / "clean", ["AAA"])
    tws.jobs.features(spark, tmp / "clean", tmp / "out", names=NAMES, sample="100ms", plots=1)
    text = (tmp / "out" / "_report.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    for name in NAMES:
        assert f">{name}</text>" in text
    assert "Book of AAA" in text
    assert "Spread of AAA" in text
    assert not re.search(r"(src|href)=|url\((?!#)|@import|https?:|\bnan\b", text)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"names": []}, InvalidOption, "names is empty"),
        ({"names": ["mud"]}, InvalidOption, "mud"),
        ({"sample": "soon"}, InvalidOption, "soon"),
        ({"dates": ["yesterday"]}, InvalidOption, "invalid date"),
    ],
)
def test_invalid_options_are_refused_before_any_task(spark, tmp, options, error, message):
    write_archive(tmp / "clean", ["AAA"], 20)
    with pytest.raises(error, match=message):
        tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)


def test_raw_logs_are_refused_with_a_hint(spark, tmp):
    log = ArchiveLayout(tmp).raw("venue", "2023-11-14")
    tw.open_publisher(log, segment_bytes=1 << 16).close()
    with pytest.raises(NotALog, match="etl refine"):
        tws.jobs.features(spark, tmp, tmp / "out")


def test_a_page_of_other_days_is_written_again(spark, tmp):
    write_archive(tmp / "clean", count=60)
    options = {"names": ["mid"], "sample": "1s", "plots": 0}
    page = tmp / "out" / "_report.html"
    for symbol in ("AAA", "BBB"):
        tws.jobs.features(spark, tmp / "clean", tmp / "out", symbols=[symbol], **options)
    assert "AAA" not in page.read_text(encoding="utf-8")
    both = tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    assert both.done == 0
    assert "AAA" in page.read_text(encoding="utf-8")
    before = page.stat().st_mtime_ns
    tws.jobs.features(spark, tmp / "clean", tmp / "out", **options)
    assert page.stat().st_mtime_ns == before


def test_a_day_after_missing_ones_begins_without_an_old_book(spark, tmp_path):
    write_archive(tmp_path / "archive")
    old = tmp_path / "archive/v1/venue/AAA"
    (old / DAYS[0]).rename(old / "2022-01-01")
    # Its records have times of another day, which does not matter: they must not be read.
    tws.jobs.features(
        spark, tmp_path / "archive", tmp_path / "made", names=["mid"], dates=[DAYS[1]], plots=0
    )
    (tmp_path / "alone").mkdir()
    Instruments.load(tmp_path / "archive").save(tmp_path / "alone")
    (tmp_path / "alone/v1/venue/AAA").mkdir(parents=True)
    (old / DAYS[1]).rename(tmp_path / "alone/v1/venue/AAA" / DAYS[1])
    tws.jobs.features(spark, tmp_path / "alone", tmp_path / "want", names=["mid"], plots=0)

    made, want = (
        sorted(
            pair  # each time occurs once
            for file in files_of(tmp_path / table, "AAA", DAYS[1])
            for pair in zip(
                *pq.ParquetFile(file).read(["timestamp_ns", "mid"]).to_pydict().values(),
                strict=True,
            )
        )
        for table in ("made", "want")
    )
    assert made
    assert made == want
    assert files_of(tmp_path / "made", "BBB", DAYS[1])
