"""Which raw logs are refined together, and what is missing in them."""

import random
from pathlib import Path

import pytest

import tapewire as tw
from tapewire.errors import InvalidOption
from tapewire.refine.raw_units import missing_of, raw_logs, units_of
from tapewire.spark.jobs import refine
from tests.support.raw_tapes import archive_raw, raw_rows


def test_sequence_numbers_of_an_adjacent_day_are_not_missing(tmp_path):
    rows = raw_rows(2_000, late_every=7)
    rows[300:310] = [None] * 10
    archive_raw(tmp_path, rows)
    one, two = units_of(raw_logs(tmp_path))
    assert [log.date for log in one.neighbours] == ["2024-01-02"]

    assert list(missing_of([300, 309, 310, 1], one.neighbours)) == [[300, 309, 310, 1]]
    late = next(i for i in range(1_001, 2_000) if rows[i][0] // 10**9 < 1_704_153_600)
    assert list(missing_of([late, late, late + 1, 1], two.neighbours)) == []
    assert next(iter(missing_of([305, late, late + 1, 1], two.neighbours)))[:2] == [305, 309]


def test_a_damaged_adjacent_day_is_no_error(tmp_path):
    rows = raw_rows(2_000, late_every=7)
    archive_raw(tmp_path, rows)
    one, _ = units_of(raw_logs(tmp_path))
    for segment in Path(one.neighbours[0].path).glob("*.q"):
        data = bytearray(segment.read_bytes())
        data[4096:8192] = random.Random(1).randbytes(4096)
        segment.write_bytes(data)
    with tw.open_log(one.neighbours[0].path) as log, pytest.raises(tw.TapewireError):
        list(log)
    assert list(missing_of([1_500, 1_999, 2_000, 1], one.neighbours))[-1][1] == 1_999


def test_infinite_lateness_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="lateness=inf"):
        refine(None, tmp_path, tmp_path, lateness=float("inf"))
