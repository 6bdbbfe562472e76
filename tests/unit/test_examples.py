"""The examples are run for real, as a reader of the tutorial would run them."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import bus

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def command(name, *args):
    return [sys.executable, "-X", "dev", EXAMPLES / f"{name}.py", *map(str, args)]


def run(name, *args, cwd):
    done = subprocess.run(
        command(name, *args), capture_output=True, text=True, cwd=cwd, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def queue(tmp):
    run("feed", tmp / "prices", "--seconds", 0.5, "--rate", 2000, cwd=tmp)
    return tmp / "prices"


def test_the_feed_appends_as_many_prices_as_it_says(tmp):
    said = run("feed", tmp / "prices", "--seconds", 0.3, cwd=tmp)
    with tw.open_log(tmp / "prices") as reader:
        assert f"{sum(1 for _ in reader)} prices appended" in said


def test_the_strategy_reads_every_price(queue, tmp):
    with tw.open_log(queue) as reader:
        count = sum(1 for _ in reader)
    assert f"strategy: {count} prices" in run("strategy", queue, "--idle", 0, cwd=tmp)


def test_the_strategy_goes_on_where_it_stopped(queue, tmp):
    assert "starting at number 0" in run("strategy", queue, "--records", 30, cwd=tmp)
    assert "starting at number 30" in run("strategy", queue, "--idle", 0, cwd=tmp)


def test_a_killed_strategy_goes_on_behind_its_last_commit(queue, tmp, eventually):
    with tw.open_log(queue) as reader:
        count = sum(1 for _ in reader)
    process = subprocess.Popen(command("strategy", queue, "--idle", 60), stdout=subprocess.PIPE)
    try:
        assert b"starting at number 0" in process.stdout.readline()

        def committed_what_it_could():
            with tw.open_log(queue) as reader:
                reader.seek_seq(count // 100 * 100)
                meta = (queue / "readers" / "strategy.meta").read_bytes()
                return reader.position.offset.to_bytes(8, "little") in meta

        eventually(committed_what_it_could)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert f"starting at number {count // 100 * 100}\n" in run(
        "strategy", queue, "--idle", 0, cwd=tmp
    )


def test_the_demo_ends_by_itself_having_lost_nothing(tmp):
    said = run("demo", "--seconds", 2, "--output", tmp / "out", cwd=tmp)
    assert "kill -9" in said
    assert "resumes at number" in said
    assert "No record was lost" in said
    assert len(re.findall(r"rolled into segment", said)) >= 1
    assert (tmp / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "prefers-color-scheme: dark" in page


def test_the_demo_replaces_what_an_earlier_run_left(tmp):
    (tmp / "out").mkdir()
    page = tmp / "out" / "index.html"
    page.write_text("old")
    run("demo", "--seconds", 1, "--output", tmp / "out", cwd=tmp)
    assert "records lost" in page.read_text(encoding="utf-8")


def test_strategies_join_and_leave_the_router_while_it_runs(tmp, eventually):
    layout = bus.Layout(tmp / "bus")
    orders = 50

    def trade(name):
        """All orders of a strategy, from READY to the last fill."""
        me = layout.orders.strategy(name)
        with (
            tw.open_publisher(me.orders_out, segment_bytes=1 << 20) as out,
            bus.SubscriberDiscovery(me.orders_in, "me") as discovery,
        ):
            out.append_batch(1, [b"%d" % n for n in range(orders)])
            bus.mark_ready(me.orders_out)
            eventually(lambda: isinstance(discovery.poll(), bus.Connected))
            fills = []
            eventually(lambda: fills.extend(discovery.reader) or len(fills) == orders)
            discovery.reader.commit()
            bus.clear_ready(me.orders_out)
        return [int(bytes(fill.payload)) for fill in fills]

    router = subprocess.Popen(
        command("router_hot_loop", layout.root, "--orders", 3 * orders),
        stdout=subprocess.PIPE,
        text=True,
    )
    with router:
        try:
            assert trade("alpha") == list(range(orders))
            assert trade("beta") == list(range(orders))
            assert trade("alpha") == list(range(orders)), "it came back"
            assert "answered 150 orders of 1 strategies" in router.communicate(timeout=60)[0]
        finally:
            router.kill()
    assert router.returncode == 0
