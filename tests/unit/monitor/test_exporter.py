"""The metrics for Prometheus, checked against the bus, promtool and the naming conventions."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import tapewire as tw
from tapewire.monitor import Limits, Watch
from tests.support.statuses import queue_status, reader_status

pytest.importorskip("prometheus_client", reason="needs prometheus-client")

from prometheus_client.parser import text_string_to_metric_families

from tapewire.monitor import exporter

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "tapewire.json"


def scrape(watch):
    """Return every sample, by name and labels."""
    text = exporter.exposition(exporter.BusCollector(watch)).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(watch):
    text = exporter.exposition(exporter.BusCollector(watch)).decode()
    return list(text_string_to_metric_families(text))


@pytest.fixture
def full(tmp, eventually):
    """A watch of a bus that has a sample of every metric."""
    with (
        tw.open_publisher(tmp / "md", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "md", "a"),
    ):
        writer.append(1, b"one")
        # The counters are copied to stats.meta ten times a second.
        eventually(lambda: tw.queue.status(tmp / "md").metrics)
        yield Watch(tmp)


def test_values_are_those_of_the_queue(tmp):
    with (
        tw.open_publisher(tmp / "md", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "md", "slow", pinned=True) as reader,
    ):
        for n in range(200):
            writer.append(1, bytes(100), timestamp_ns=n * 10**9)
        reader.next()
        reader.commit()
        wanted = writer.metrics()
        writer.close()  # the last copy of the counters
        got = scrape(Watch(tmp))
    queue = ("queue", "md")
    slow = (queue, ("reader", "slow"))
    assert got["tapewire_queue_last_seq", queue] == 199
    assert got["tapewire_queue_stored_records", queue] == 200
    assert got["tapewire_queue_records_total", queue] == 200
    assert got["tapewire_queue_written_bytes_total", queue] == wanted["bytes_written"]
    assert got["tapewire_queue_rolls_total", queue] == wanted["rolls"] > 0
    assert got["tapewire_queue_last_record_timestamp_seconds", queue] == 199.0
    assert got["tapewire_queue_disk_bytes", queue] > 200 * 192
    assert (got["tapewire_writer_up", queue], got["tapewire_writer_closed", queue]) == (0, 1)
    assert got["tapewire_writer_epoch", queue] == 1
    assert got["tapewire_reader_lag_records", *slow] == 199
    assert got["tapewire_reader_lag_seconds", *slow] == 198.0
    assert got["tapewire_reader_lag_bytes", *slow] > 199 * 192
    assert got["tapewire_reader_next_seq", *slow] == 1
    assert (got["tapewire_reader_up", *slow], got["tapewire_reader_pinned", *slow]) == (1, 1)
    assert got["tapewire_queue_errors_total", ("kind", "disk_full"), queue] == 0
    assert ("tapewire_scrape_duration_seconds",) in got


def test_ages_and_alerts_come_from_comparing_scrapes(bus):
    bus["md"] = queue_status(readers=(reader_status("a"),))
    watch = bus.watch(limits=Limits(writer_ttl=2.0, reader_ttl=100.0))
    assert scrape(watch)["tapewire_alerts", ("severity", "critical")] == 0
    bus.clock += 15.0
    got = scrape(watch)
    assert got["tapewire_writer_heartbeat_age_seconds", ("queue", "md")] == 15.0
    assert got["tapewire_reader_heartbeat_age_seconds", ("queue", "md"), ("reader", "a")] == 15.0
    assert got["tapewire_alerts", ("severity", "critical")] == 1
    assert got["tapewire_writer_up", ("queue", "md")] == 1  # alive, though without a heartbeat


def test_unknown_values_are_not_exposed(bus):
    bus["bad"] = tw.CorruptMetadata("damaged")
    bus["foreign"] = queue_status(metrics=None, last_seq=None, last_timestamp_ns=None)
    got = scrape(bus.watch())
    assert got["tapewire_queue_problems", ("queue", "bad")] == 1
    assert ("tapewire_queue_last_seq", ("queue", "bad")) not in got
    assert ("tapewire_writer_up", ("queue", "bad")) not in got
    assert ("tapewire_queue_last_seq", ("queue", "foreign")) not in got
    assert ("tapewire_queue_records_total", ("queue", "foreign")) not in got


def test_malicious_names_are_only_labels(bus):
    names = ['a"} 1\nfake_metric{x="', "back\\slash", "new\nline", "\udcff"]
    for name in names:
        bus[name] = queue_status(readers=(reader_status(name),))
    got = scrape(bus.watch())
    assert len([key for key in got if key[0] == "tapewire_queue_last_seq"]) == len(names)
    assert not [key for key in got if not key[0].startswith("tapewire_")]


def test_names_have_help_and_end_in_their_unit(full):
    for family in families(full):
        assert family.name.startswith("tapewire_")
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"_(ms|ns|us|kb|mb|count|milliseconds)$", family.name)
        assert not (family.type == "gauge" and family.name.endswith("_total"))
        assert family.samples, f"{family.name} is never exposed"


def test_promtool_reports_nothing(full):
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool")
    text = exporter.exposition(exporter.BusCollector(full))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def exposed_names(watch):
    return {sample.name for family in families(watch) for sample in family.samples}


def test_the_reference_page_lists_every_metric(full):
    page = (ROOT / "docs" / "reference" / "exporter.md").read_text()
    listed = re.findall(r"^\| *`(\w+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(exposed_names(full))


def dashboard_queries():
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_dashboard_uses_metrics_that_exist(full):
    names = exposed_names(full)
    queries = dashboard_queries()
    assert len(queries) > 10
    for query in queries:
        used = re.findall(r"\btapewire_\w+", query)
        assert used, query
        assert set(used) <= names, query


def test_the_dashboard_is_one_that_grafana_imports():
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["id"] is None  # assigned by Grafana
    assert re.fullmatch(r"[\w-]{1,40}", dashboard["uid"])
    assert dashboard["schemaVersion"] >= 36
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"]
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)|\$\{(\w+)", DASHBOARD.read_text()))
    assert {a or b for a, b in used} - {"__rate_interval", "__all"} <= variables


def test_scrapes_are_answered_at_metrics_in_the_format_asked_for(bus):
    bus["md"] = queue_status(last_seq=5)
    with exporter.serve(bus.watch()) as server, urlopen(server.url + "metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert b'tapewire_queue_last_seq{queue="md"} 5.0\n' in answer.read()


@pytest.mark.parametrize("version", ["abc", '""', "1.x"])
def test_an_unknown_format_is_answered_in_the_default_one(bus, version):
    bus["md"] = queue_status()
    with exporter.serve(bus.watch()) as server:
        accept = {"Accept": f"application/openmetrics-text;version={version}"}
        with urlopen(Request(server.url + "metrics", headers=accept), timeout=10) as answer:
            assert b"tapewire_queue_last_seq" in answer.read()
