"""What a tap tells of itself, however long it runs."""

from tapewire.archive import TapReport


def test_logs_are_listed_as_far_as_they_are_recent_and_counted_once_each():
    report = TapReport()
    days, streams = 400, [f"v/S{n}/book" for n in range(5)]
    for day in range(days):
        for again in range(3):  # midnight is past for one, and not yet for another
            for number, stream in enumerate(streams):
                late = (again + number) % 2
                report.add_log(stream, f"v1/{stream}/{max(day - late, 0):03}")
    assert report.logs_count == days * len(streams)
    told = report.to_dict()
    assert (len(told["logs"]), told["logs_count"]) == (1000, 2000)
    assert told["logs"] == sorted(told["logs"])
    assert {log[-3:] for log in told["logs"]} >= {f"{day:03}" for day in range(days - 190, days)}
    assert "into 2,000 logs" in str(report)


def test_many_streams_are_counted_once_though_they_are_not_all_listed():
    report = TapReport()
    for _ in range(3):
        for n in range(1500):
            report.add_log(f"v/S{n}/book", f"v1/v/S{n}/2026-01-01/book")
    assert (report.logs_count, len(report.logs)) == (1500, 1000)
