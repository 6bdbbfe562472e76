"""The exporter, scraped by a real Prometheus."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.unit.monitor.test_exporter import dashboard_queries


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def exporter(tmp):
    """The address of `tapewire metrics`, run as a user would."""
    command = [
        sys.executable,
        "-m",
        "tapewire.cli",
        "metrics",
        tmp / "bus",
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            yield url.removeprefix("http://").removesuffix("/metrics")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
        finally:
            process.kill()


@pytest.fixture
def query(tmp, exporter, eventually):
    """`query(expression)`: the result of Prometheus, [(labels, value)]."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus")
    config = {
        "global": {"scrape_interval": "200ms"},
        "scrape_configs": [{"job_name": "tapewire", "static_configs": [{"targets": [exporter]}]}],
    }
    (tmp / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={tmp / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]

    def query(expression):
        address = f"http://127.0.0.1:{port}/api/v1/query?" + urlencode({"query": expression})
        try:
            with urlopen(address, timeout=10) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:  # it is still starting
                raise AssertionError(f"{expression}: {error.read().decode()}") from None
            return []
        except OSError:
            return []
        assert found["status"] == "success"
        return [(one["metric"], float(one["value"][1])) for one in found["data"]["result"]]

    log = (tmp / "prometheus.log").open("wb")
    with log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            eventually(lambda: query("up == 1"), timeout=30)
            yield query
        finally:
            process.terminate()
            process.wait(10)


def test_prometheus_stores_the_values_of_the_bus_and_the_dashboard_can_query_them(
    lagging, query, eventually
):
    assert query("tapewire_queue_last_seq")[0][1] == 99
    (labels, lag) = query("tapewire_reader_lag_records")[0]
    assert (labels["queue"], labels["reader"], lag) == ("md", "slow", 60)
    assert query("tapewire_reader_lag_seconds")[0][1] == 59
    assert query("tapewire_writer_up")[0][1] == 1
    written = lagging.metrics()["bytes_written"]
    eventually(lambda: query("tapewire_queue_written_bytes_total")[0][1] == written)

    lagging.append_batch(1, [b"more"] * 50)
    eventually(lambda: query("tapewire_queue_last_seq")[0][1] == 149)
    eventually(lambda: query("tapewire_queue_records_total")[0][1] == 150)
    eventually(lambda: query("increase(tapewire_queue_records_total[1m])")[0][1] > 0)

    for expression in dashboard_queries():
        chosen = expression.replace("$queue", ".*").replace("$reader", ".*")
        query(chosen.replace("$__rate_interval", "1m"))  # an invalid dashboard fails

    lagging.close()
    eventually(lambda: query("tapewire_writer_up")[0][1] == 0)
    assert query("tapewire_writer_closed")[0][1] == 1
