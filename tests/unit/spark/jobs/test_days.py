"""The symbols' days of an archive."""

import tapewire as tw
from tapewire.bus import ArchiveLayout
from tapewire.spark.jobs.days import days_of
from tapewire.spark.reading.options import ReadOptions


def test_a_day_goes_on_from_the_days_before_it_up_to_the_first_that_is_missing(tmp_path):
    layout = ArchiveLayout(tmp_path)
    for date in ("2023-04-05", "2024-02-29", "2024-03-01"):
        for stream in ("book", "trades"):
            tw.open_publisher(layout.log("v", "S", date, stream), segment_bytes=1 << 20).close()
    old, first, second = days_of(tmp_path, ReadOptions())

    assert old.before == first.before == ()
    assert [(log.date, log.stream) for log in second.before] == [("2024-02-29", "book")]
