"""Alerts: when they are raised, since when they are active, and their remedies."""

import pytest

import tapewire as tw
from tapewire.monitor import Filesystem, Limits
from tapewire.monitor.alerts import ERROR_COUNTERS, find
from tests.support.statuses import queue_status, reader_status


def alerts_of(watch):
    return {(alert.kind, alert.severity) for alert in watch.sample().alerts}


def test_a_healthy_bus_raises_nothing(bus):
    bus["md"] = queue_status(
        readers=(reader_status("a"),), metrics=dict.fromkeys(ERROR_COUNTERS, 0)
    )
    assert bus.watch().sample().alerts == ()


def test_a_killed_writer_is_critical(bus):
    bus["md"] = queue_status(alive=False)
    (alert,) = bus.watch().sample().alerts
    assert (alert.kind, alert.severity, alert.queue) == ("writer_dead", "critical", "md")
    assert "4711" in alert.text
    assert alert.remedy


def test_a_closed_writer_is_reported_only_if_it_was_seen_alive(bus):
    bus["old"] = queue_status(alive=False, pid=None)
    bus["md"] = queue_status()
    watch = bus.watch()
    assert alerts_of(watch) == set()
    bus["md"] = queue_status(alive=False, pid=None)
    (alert,) = watch.sample().alerts
    assert (alert.kind, alert.severity, alert.queue) == ("writer_closed", "info", "md")


def test_a_writer_without_a_heartbeat_is_critical(bus):
    bus["md"] = queue_status()
    watch = bus.watch()
    watch.sample()
    bus.clock += 3.0
    assert alerts_of(watch) == {("writer_stale", "critical")}


@pytest.mark.parametrize(
    ("reader", "kind", "severity"),
    [
        ({"alive": False}, "reader_dead", "info"),
        ({"alive": False, "lag_bytes": 64}, "reader_dead", "warning"),
        ({"alive": False, "pinned": True}, "reader_dead", "warning"),
        ({"lag_records": 101}, "reader_lagging", "warning"),
        ({"lag_bytes": 1001}, "reader_lagging", "warning"),
        ({"lag_seconds": 2.5}, "reader_lagging", "warning"),
    ],
)
def test_readers_that_need_attention(bus, reader, kind, severity):
    bus["md"] = queue_status(readers=(reader_status("a", **reader),))
    limits = Limits(lag_records=100, lag_bytes=1000, lag_seconds=2.0)
    (alert,) = bus.watch(limits=limits).sample().alerts
    assert (alert.kind, alert.severity, alert.reader) == (kind, severity, "a")
    assert alert.remedy


def test_a_reader_at_its_limit_is_not_lagging_yet(bus):
    at_limit = reader_status("a", lag_records=100, lag_bytes=1000, lag_seconds=2.0)
    bus["md"] = queue_status(readers=(at_limit,))
    limits = Limits(lag_records=100, lag_bytes=1000, lag_seconds=2.0)
    assert bus.watch(limits=limits).sample().alerts == ()


def test_a_reader_without_a_heartbeat_is_critical(bus):
    bus["md"] = queue_status(readers=(reader_status("a"),))
    watch = bus.watch(limits=Limits(writer_ttl=1000.0))
    watch.sample()
    bus.clock += 6.0
    assert alerts_of(watch) == {("reader_stale", "critical")}


@pytest.mark.parametrize(
    ("free", "expected"), [(20, None), (10, "warning"), (3, "critical"), (0, "critical")]
)
def test_a_disk_that_fills_up_is_reported_in_time(free, expected):
    disk = Filesystem("/data", 100, free)
    found = list(find([], [disk], limits=Limits(), was_alive=set(), rising={}, unlisted={}))
    assert [finding.severity for finding in found] == ([expected] if expected else [])


def test_two_full_disks_are_two_alerts(bus):
    disks = [Filesystem("/a", 100, 1), Filesystem("/b", 100, 1)]
    found = list(find([], disks, limits=Limits(), was_alive=set(), rising={}, unlisted={}))
    assert len({(finding.kind, finding.path) for finding in found}) == 2


def test_problems_and_unreadable_queues_are_reported(bus):
    bus["a"] = queue_status(problems=("000000000.q cannot be read", "index.meta is short"))
    bus["b"] = PermissionError(13, "Permission denied", "b/control.meta")
    first, second = bus.watch().sample().alerts
    assert (first.kind, first.severity, first.queue) == ("queue_unreadable", "critical", "b")
    assert (second.kind, second.queue) == ("queue_problem", "a")
    assert "and 1 more" in second.text


@pytest.mark.parametrize("counter", sorted(ERROR_COUNTERS))
def test_an_error_counter_that_rises_is_shown_for_a_minute(bus, counter):
    bus["md"] = queue_status(metrics={counter: 3})
    watch = bus.watch(limits=Limits(writer_ttl=1000.0))
    assert alerts_of(watch) == set()  # counted before the watch started
    bus.clock += 1.0
    bus["md"] = queue_status(metrics={counter: 5})
    (alert,) = watch.sample().alerts
    assert alert.kind == f"{counter}_rising"
    assert "+2" in alert.text
    bus.clock += 59.0
    assert len(watch.sample().alerts) == 1
    bus.clock += 2.0
    assert watch.sample().alerts == ()


def test_counters_reset_by_a_new_writer_are_not_errors(bus):
    bus["md"] = queue_status(metrics={"disk_full": 3})
    watch = bus.watch()
    watch.sample()
    bus["md"] = queue_status(metrics={"disk_full": 0})
    assert watch.sample().alerts == ()


@pytest.mark.parametrize("counter", ["gaps_found", "damaged_spans"])
def test_losses_found_by_recovery_are_reported(bus, counter):
    bus["md"] = queue_status(metrics={counter: 2})
    assert alerts_of(bus.watch()) == {(counter, "warning")}


def test_an_alert_keeps_its_start_and_is_dropped_when_over(bus):
    bus["md"] = queue_status(alive=False)
    watch = bus.watch(limits=Limits(writer_ttl=1000.0))
    (first,) = watch.sample().alerts
    bus.clock += 5.0
    (second,) = watch.sample().alerts
    assert (second.since_ns, second.age) == (first.since_ns, 5.0)
    bus["md"] = queue_status()
    assert watch.sample().alerts == ()
    bus.clock += 5.0
    bus["md"] = queue_status(alive=False)
    (third,) = watch.sample().alerts
    assert third.age == 0.0
    assert third.since_ns > first.since_ns


def test_the_worst_is_first(bus):
    bus["a"] = queue_status(readers=(reader_status("r", alive=False),))
    bus["b"] = queue_status(problems=("x",))
    bus["c"] = queue_status(alive=False)
    severities = [alert.severity for alert in bus.watch().sample().alerts]
    assert severities == ["critical", "warning", "info"]


def test_invalid_limits_are_refused():
    with pytest.raises(tw.InvalidOption, match="lag_seconds=0"):
        Limits(lag_seconds=0)
