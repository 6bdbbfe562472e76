"""The table of costs: measured values, and estimates from them."""

from pathlib import Path

import pytest

import tapewire as tw
from benchmarks.spark import memory, scale, tape
from tapewire import replay


def run(work, gigabytes, seconds, worker=200_000_000):
    return scale.Run(work, gigabytes, int(gigabytes * 4e6), 1, seconds, worker, worker // 2, 1)


def kept(*runs):
    facts = {"cores": 2, "cpu": "a cpu", "commit": "0" * 40}
    return facts | {"runs": [vars(each) for each in runs]}


def test_sizes_that_were_not_measured_are_on_a_line_through_the_measured_ones():
    text = scale.page(kept(run("records", 1.0, 7.0), run("records", 8.0, 21.0)))
    assert "| records | **7 s** | 25 s | 205 s | 5.0 s + 2.00 s × GB |" in text


def test_growth_of_memory_is_from_the_smallest_log_to_the_largest():
    runs = [run("refine", 8.0, 9.0, 220_000_000), run("refine", 1.0, 1.0, 200_000_000)]
    assert scale.bounded(runs)["refine"] == pytest.approx(0.1)
    assert "refine +10%" in scale.page(kept(*runs))


def test_a_generated_log_is_trusted_by_a_replay_to_its_end(tmp):
    made = tape.write_books(tmp / "archive", 3_000_000)
    log = tmp / "archive" / "v1" / tape.VENUE / "S0" / "2026-01-30" / "book"
    with tw.open_log(log) as reader:
        assert sum(1 for _ in reader) == made.records + 1
    rows = replay.features(log, ["mid"], "1s")
    assert rows.num_rows == made.records * tape.EVENT_NS // 10**9
    assert rows["mid"].null_count == 0


def test_a_generated_raw_log_has_all_its_symbols_in_turn(tmp):
    made = tape.write_raw(tmp / "archive", 3_000_000, symbols=3)
    (log,) = (tmp / "archive" / "raw").glob("v1/*/*/raw")
    for symbol in made.symbols:
        rows = replay.features(log, ["mid"], "1s", symbols=[symbol])
        assert rows["mid"].null_count == 0


def test_peaks_are_of_processes_below_this_one(no_spark):
    with memory.watched() as peaks:
        pass
    assert peaks.as_dict() == {
        "worker_bytes": 0,
        "worker_own_bytes": 0,
        "jvm_bytes": 0,
        "workers": 0,
    }


def test_the_page_has_the_place_for_the_tables():
    text = Path(scale.PAGE).read_text()
    assert text.index(scale.BEGIN) < text.index(scale.END)
