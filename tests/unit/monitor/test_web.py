"""The server of the live page: its responses, and the hosts it accepts."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

import tapewire as tw
from tapewire.monitor import Watch
from tapewire.monitor.connections import MAX_STREAMS
from tapewire.monitor.httpd import Answer, LocalServer
from tapewire.monitor.web import LivePage
from tests.support.statuses import queue_status, reader_status


@pytest.fixture
def page(bus):
    bus["md"] = queue_status(last_seq=41, readers=(reader_status("a"),))
    with LivePage(bus.watch(), interval=0.05) as page:
        yield page


@pytest.fixture
def ask():
    """`ask(server, path)`: a response, whose connection is closed after the test."""
    with contextlib.ExitStack() as connections:

        def ask(server, path="/", method="GET", headers=None):
            url = urlsplit(server.url)
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
            connections.callback(connection.close)
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            connections.callback(answer.close)
            return answer

        yield ask


def events(answer):
    """Iterate over (kind, data) of the events of a stream."""
    kind = None
    while line := answer.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_the_page_fetches_nothing_from_elsewhere(page, ask):
    text = ask(page).read().decode()
    wanted = re.findall(r'(?:src|href)="(/[^"]*)"', text)
    assert {"/app.js", "/style.css", "/icon.svg"} <= set(wanted)
    for path in wanted:
        assert ask(page, path).status == 200, path
    script = "".join(
        ask(page, f"/{name}.js").read().decode() for name in ("app", "plot", "numbers")
    )
    foreign = re.findall(
        r"https?://[^\s\"'`]+", text + script + ask(page, "/style.css").read().decode()
    )
    assert set(foreign) <= {"http://www.w3.org/2000/svg"}


def test_every_response_forbids_foreign_scripts_frames_and_sniffing(page, ask):
    for path in ("/", "/app.js", "/events", "/snapshot.json", "/nothing"):
        headers = ask(page, path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "10.0.0.7",
        "[::",
        "",
        "a b",
        "@",
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(page, host, ask):
    for path in ("/", "/events", "/snapshot.json"):
        answer = ask(page, path, headers={"Host": host})
        assert answer.status == 421
        assert b"md" not in answer.read()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1234", "localhost", "LOCALHOST:99", "[::1]:8"]
)
def test_all_names_of_this_machine_are_accepted_also_through_a_tunnel(page, host, ask):
    assert ask(page, headers={"Host": host}).status == 200


def test_a_public_server_accepts_addresses_and_allowed_names():
    with LocalServer({}, bind="0.0.0.0", allow_hosts=["Desk.example"]) as server:
        assert server.knows_host("192.0.2.7:80")
        assert server.knows_host("desk.example:80")
        assert not server.knows_host("evil.example")


def test_a_stream_starts_with_the_history_and_continues_with_each_sample(page, bus, ask):
    stream = events(ask(page, "/events"))
    kind, hello = next(stream)
    assert kind == "hello"
    assert hello["interval"] == 0.05
    assert hello["limits"]["lag_seconds"] == 10.0
    assert hello["history"]["md"]["readers"]["a"]["lag_bytes"][0] == 0
    kind, snapshot = next(stream)
    assert (kind, snapshot["queues"][0]["last_seq"]) == ("snapshot", 41)
    bus["md"] = queue_status(last_seq=42)
    assert any(snapshot["queues"][0]["last_seq"] == 42 for _, snapshot in stream)


def test_a_removed_bus_is_reported_and_may_be_created_again(tmp, ask):
    directory = tmp / "bus"
    directory.mkdir()
    tw.open_publisher(directory / "md", segment_bytes=8192).close()
    with LivePage(Watch(directory), interval=0.02) as page:
        stream = events(ask(page, "/events"))
        directory.rename(tmp / "away")
        assert any("error" in snapshot for _, snapshot in stream)
        (tmp / "away").rename(directory)
        assert any(snapshot.get("queues") for _, snapshot in stream)


def test_malicious_names_remain_data(bus, ask):
    name = "</script>\n\nevent: hello\ndata: {}\u2028<img src=x onerror=alert(1)>"
    bus[name] = queue_status(readers=(reader_status(name),))
    with LivePage(bus.watch(), interval=10) as page:
        stream = events(ask(page, "/events"))
        next(stream)
        kind, snapshot = next(stream)
        assert kind == "snapshot"
        assert snapshot["queues"][0]["name"].startswith("</script>\\n\\nevent: hello")


def test_other_methods_and_paths_are_refused(page, ask):
    assert ask(page, "/nothing").status == 404
    assert ask(page, "/../../etc/passwd").status == 404
    assert ask(page, "/page/app.js").status == 404
    assert ask(page, method="POST").status == 501
    head = ask(page, method="HEAD")
    assert (head.status, head.read()) == (200, b"")


def test_closing_ends_open_streams_immediately(bus, ask):
    bus["md"] = queue_status()
    page = LivePage(bus.watch(), interval=1000)
    stream = events(ask(page, "/events"))
    next(stream), next(stream)
    page.close()
    assert all(kind == "snapshot" for kind, _ in stream)  # ends
    assert not [t for t in threading.enumerate() if t.name in ("tw-monitor", "tw-http")]


def test_open_streams_are_limited_and_closed_ones_make_space(eventually, ask):
    go_on = threading.Event()

    def endless(request):
        def pieces():
            yield b"begun\n"
            go_on.wait(30)

        return Answer("text/plain", pieces())

    with LocalServer({"/": endless}) as server:
        taken = [ask(server) for _ in range(MAX_STREAMS)]
        assert all(answer.readline() == b"begun\n" for answer in taken)
        assert ask(server).status == 503
        go_on.set()
        eventually(lambda: ask(server).status == 200)


def test_a_failing_route_responds_with_its_error(ask):
    def gone(request):
        raise FileNotFoundError(2, "no such directory", "bus")

    with LocalServer({"/": gone}) as server:
        answer = ask(server)
        assert answer.status == 503
        assert b"no such directory" in answer.read()


def test_it_listens_on_ipv6_too(ask):
    try:
        server = LocalServer({"/": lambda request: Answer("text/plain", b"here")}, bind="::1")
    except OSError:
        pytest.skip("needs IPv6 on loopback")
    with server:
        assert ask(server).read() == b"here"


def test_samples_do_not_accumulate_after_a_slow_one(bus, ask):
    """A sample that takes longer than the interval delays the next; they never overlap."""
    bus["md"] = queue_status()
    watch = bus.watch()
    inside, most, looks = 0, 0, 0
    sample = watch.sample

    def slow():
        nonlocal inside, most, looks
        inside += 1
        looks += 1
        most = max(most, inside)
        time.sleep(0.02)
        inside -= 1
        return sample()

    watch.sample = slow
    with LivePage(watch, interval=0.001) as page:
        stream = events(ask(page, "/events"))
        for _ in range(5):
            next(stream)
    assert (most, looks >= 3) == (1, True)


def test_an_invalid_path_is_not_found_and_prints_nothing(page, capfd):
    url = urlsplit(page.url)
    with socket.create_connection((url.hostname, url.port), timeout=10) as client:
        client.sendall(b"GET http://[ HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 404"
    assert capfd.readouterr().err == ""
