"""The report of a tap stays bounded, however long it runs."""

from tapewire.archive import TapReport


def test_recent_logs_are_listed_and_each_log_is_counted_once():
    report = TapReport()
    days, streams = 400, [f"v/S{n}/book" for n in range(5)]
    for day in range(days):
        for again in range(3):  # some are past midnight, others not yet
            for number, stream in enumerate(streams):
                late = (again + number) % 2
                report.add_log(stream, f"v1/{stream}/{max(day - late, 0):03}")
    assert report.logs_count == days * len(streams)
    reported = report.to_dict()
    assert (len(reported["logs"]), reported["logs_count"]) == (1000, 2000)
    assert reported["logs"] == sorted(reported["logs"])
    assert {log[-3:] for log in reported["logs"]} >= {
        f"{day:03}" for day in range(days - 190, days)
    }
    assert "into 2,000 logs" in str(report)


def test_logs_that_are_not_listed_are_counted_once():
    report = TapReport()
    for _ in range(3):
        for n in range(1500):
            report.add_log(f"v/S{n}/book", f"v1/v/S{n}/2026-01-01/book")
    assert (report.logs_count, len(report.logs)) == (1500, 1000)
