"""`tapewire monitor` and `tapewire metrics` as commands."""

import contextlib
import dataclasses
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

import tapewire as tw
import tapewire.monitor
from tapewire.cli.app import main
from tests.support.processes import WRITER, Child

TAPEWIRE = [sys.executable, "-m", "tapewire.cli"]


@dataclasses.dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def tapewire(monkeypatch, capfd):
    """`tapewire("monitor", …)`: the command in this process, its exit code and what it printed."""

    def tapewire(*arguments):
        monkeypatch.setattr(sys, "argv", ["tapewire", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capfd.readouterr())

    return tapewire


@pytest.fixture
def bus(tmp):
    """A bus with a long name and a reader that is behind."""
    path = tmp / "bus" / "streams" / "clean" / "binance_spot" / "BTCUSDT" / "book" / "queue"
    with (
        tw.open_publisher(path, segment_bytes=8192) as writer,
        tw.open_subscriber(path, "slow") as reader,
    ):
        for n in range(100):
            writer.append(1, bytes(100), timestamp_ns=n * 10**9)
        reader.next()
        reader.commit()
        yield tmp / "bus"


def test_once_prints_one_table_and_a_finding_is_exit_code_1(bus, tapewire):
    done = tapewire("monitor", bus, "--once", "--interval", 0.05)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    (queue,) = [line for line in lines if line.startswith("streams/clean/binance_spot")][:1]
    assert queue.split()[:2] == ["streams/clean/binance_spot/BTCUSDT/book/queue", "live"]
    (reader,) = [line for line in lines if line.lstrip().startswith("slow")]
    assert reader.split()[:3] == ["slow", "live", "99"]
    assert "98.0 s" in reader
    assert "lags by 98.0 s (limit 10.0)" in done.stdout
    assert "\x1b" not in done.stdout


def test_once_as_json_is_one_object_and_exit_code_0_without_alerts(bus, tapewire):
    done = tapewire("monitor", bus, "--once", "--json", "--interval", 0.05, "--lag-seconds", 1000)
    assert (done.returncode, done.stderr) == (0, "")
    (queue,) = json.loads(done.stdout)["queues"]
    assert queue["last_seq"] == 99
    assert queue["records_per_second"] == 0.0  # no new records between the samples
    assert queue["readers"][0]["lag_records"] == 99


def test_json_streams_one_snapshot_per_line_until_interrupted(tmp):
    with Child(WRITER, tmp / "bus" / "md", 1 << 20) as writer:
        writer.expect("ready")
        command = [*TAPEWIRE, "monitor", tmp / "bus", "--json", "--interval", "0.05"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                first = json.loads(process.stdout.readline())
                assert first["queues"][0]["last_seq"] is None
                writer.send("10")
                while json.loads(process.stdout.readline())["queues"][0]["last_seq"] != 9:
                    pass
                writer.kill()
                while not (alerts := json.loads(process.stdout.readline())["alerts"]):
                    pass
                assert alerts[0]["kind"] == "writer_dead"
                process.send_signal(signal.SIGINT)
                process.stdout.read()
                assert process.wait(10) == 0
            finally:
                process.kill()


@pytest.mark.parametrize("command", [["monitor", "--web"], ["metrics", "--port", "0"]])
def test_servers_print_their_url_and_end_with_ctrl_c(bus, command):
    with subprocess.Popen(
        [*TAPEWIRE, command[0], bus, *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            line = process.stdout.readline().decode()
            (url,) = [word for word in line.split() if word.startswith("http://127.0.0.1:")]
            with urlopen(url) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_public_address_causes_a_warning(bus):
    command = [*TAPEWIRE, "metrics", bus, "--port", "0", "--bind", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert b"warning" in process.stderr.readline()
            assert process.stdout.readline()
        finally:
            process.kill()


def test_a_port_in_use_is_reported(bus, tapewire):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tapewire("monitor", bus, "--web", "--port", port)
    assert done.returncode == 2
    assert f"port={port}" in done.stderr


def test_metrics_once_prints_the_exposition_and_json_one_sample_per_line(bus, tapewire):
    queue = 'queue="streams/clean/binance_spot/BTCUSDT/book/queue"'
    done = tapewire("metrics", bus, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"tapewire_queue_last_seq{{{queue}}} 99.0\n" in done.stdout
    samples = map(json.loads, tapewire("metrics", bus, "--once", "--json").stdout.splitlines())
    (lag,) = [s["value"] for s in samples if s["name"] == "tapewire_reader_lag_records"]
    assert lag == 99


@pytest.mark.parametrize("command", ["monitor", "metrics"])
def test_a_missing_bus_exits_4(tmp, command, tapewire):
    done = tapewire(command, tmp / "nowhere", "--once")
    assert done.returncode == 4
    assert "nowhere" in done.stderr


def test_the_live_view_without_a_terminal_names_the_alternatives(bus, tapewire):
    done = tapewire("monitor", bus)
    assert done.returncode == 2
    assert "--once" in done.stderr


@pytest.mark.parametrize(
    ("command", "module", "package", "extra"),
    [
        ("monitor", "terminal", "textual", "monitor"),
        ("metrics", "exporter", "prometheus_client", "web"),
    ],
)
def test_a_missing_extra_is_named(bus, monkeypatch, tapewire, command, module, package, extra):
    monkeypatch.delitem(sys.modules, f"tapewire.monitor.{module}", raising=False)
    monkeypatch.delattr(tw.monitor, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    done = tapewire(command, bus)
    assert done.returncode == 2
    assert f"pip install 'tapewire[{extra}]'" in done.stderr


def test_the_live_view_runs_on_a_terminal_and_q_ends_it(bus):
    pytest.importorskip("textual", reason="needs textual")
    terminal, its_end = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [*TAPEWIRE, "monitor", bus, "--interval", "0.1"],
        env=dict(os.environ, TERM="xterm-256color", COLUMNS="80", LINES="24"),
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    ) as process:
        os.close(its_end)
        try:
            while b"slow" not in shown:
                assert select.select([terminal], [], [], 30)[0], shown[-500:]
                shown += os.read(terminal, 65536)
            os.write(terminal, b"q")
            with contextlib.suppress(OSError):  # the other end is closed
                while select.select([terminal], [], [], 30)[0]:
                    os.read(terminal, 65536)
            assert process.wait(10) == 0
        finally:
            process.kill()
            os.close(terminal)
