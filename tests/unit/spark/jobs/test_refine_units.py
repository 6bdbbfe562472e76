"""Which raw logs are refined together, and what is missing in them."""

from tapewire.spark.jobs.refine_units import missing_of, raw_logs, units_of
from tests.support.raw_tapes import archive_raw, raw_rows


def test_numbers_of_a_neighbouring_day_are_not_missing(tmp_path):
    rows = raw_rows(2_000, late_every=7)
    rows[300:310] = [None] * 10
    archive_raw(tmp_path, rows)
    one, two = units_of(raw_logs(tmp_path))
    assert [log.date for log in one.neighbours] == ["2024-01-02"]

    assert list(missing_of([300, 309, 310, 1], one.neighbours)) == [[300, 309, 310, 1]]
    late = next(i for i in range(1_001, 2_000) if rows[i][0] // 10**9 < 1_704_153_600)
    assert list(missing_of([late, late, late + 1, 1], two.neighbours)) == []
    assert next(iter(missing_of([305, late, late + 1, 1], two.neighbours)))[:2] == [305, 309]
