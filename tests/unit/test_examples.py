"""The examples are run for real, as a reader of the tutorial would run them."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.protocol.orders import Fill, NewOrder

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
    assert "starting at seq=0" in run("strategy", queue, "--records", 30, cwd=tmp)
    assert "starting at seq=30" in run("strategy", queue, "--idle", 0, cwd=tmp)


def test_a_killed_strategy_goes_on_behind_its_last_commit(queue, tmp, eventually):
    with tw.open_log(queue) as reader:
        count = sum(1 for _ in reader)
    process = subprocess.Popen(command("strategy", queue, "--idle", 60), stdout=subprocess.PIPE)
    try:
        assert b"starting at seq=0" in process.stdout.readline()

        def committed_what_it_could():
            with tw.open_log(queue) as reader:
                reader.seek_seq(count // 100 * 100)
                meta = (queue / "readers" / "strategy.meta").read_bytes()
                return reader.position.offset.to_bytes(8, "little") in meta

        eventually(committed_what_it_could)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert f"starting at seq={count // 100 * 100}\n" in run("strategy", queue, "--idle", 0, cwd=tmp)


def orders_of(root, name="strategy"):
    ends = bus.Layout(root).orders.strategy(name)
    with tw.open_log(ends.orders_out) as log:
        return [NewOrder.decode(record) for record in log]


def fills_of(root, name="strategy"):
    ends = bus.Layout(root).orders.strategy(name)
    with tw.open_log(ends.orders_in) as log:
        return [Fill.decode(record) for record in log]


def test_a_strategy_on_a_bus_sends_an_order_at_each_signal(queue, tmp):
    said = run("strategy", queue, "--bus", tmp / "bus", "--idle", 0, cwd=tmp)
    signals = int(re.search(r"(\d+) signals", said)[1])
    triggers = [order.trigger_seq for order in orders_of(tmp / "bus")]
    assert len(triggers) == signals > 0
    assert triggers == sorted(set(triggers))


def test_a_strategy_that_sees_prices_again_sends_no_order_again(queue, tmp):
    run("strategy", queue, "--bus", tmp / "bus", "--idle", 0, cwd=tmp)
    before = orders_of(tmp / "bus")
    (queue / "readers" / "strategy.meta").unlink()  # it has committed nothing, then
    run("strategy", queue, "--bus", tmp / "bus", "--idle", 0, cwd=tmp)
    assert orders_of(tmp / "bus") == before


def test_what_is_wrong_with_one_strategy_is_no_harm_to_another(queue, tmp):
    run("strategy", queue, "--bus", tmp / "bus", "--name", "zeta", "--idle", 0, cwd=tmp)
    strategy = bus.Layout(tmp / "bus").orders.strategy
    strategy("no_queue").orders_out.mkdir(parents=True)
    bus.mark_ready(strategy("no_queue").orders_out)
    with tw.open_publisher(strategy("no_order").orders_out, segment_bytes=65536) as writer:
        writer.append(NewOrder.type_id, b"not an order")
    for name in ("no_order", "zeta"):
        bus.mark_ready(strategy(name).orders_out)
    run("router", tmp / "bus", "--idle", 0.3, cwd=tmp)
    assert len(fills_of(tmp / "bus", "zeta")) == len(orders_of(tmp / "bus", "zeta")) > 0


def test_the_router_answers_every_order_of_every_strategy_once(queue, tmp):
    for name in ("alpha", "beta"):
        run("strategy", queue, "--bus", tmp / "bus", "--name", name, "--idle", 0, cwd=tmp)
    for _ in range(2):  # the second has nothing left to do
        run("router", tmp / "bus", "--idle", 0.3, cwd=tmp)
    for name in ("alpha", "beta"):
        sent = [order.client_order_id for order in orders_of(tmp / "bus", name)]
        assert [fill.client_order_id for fill in fills_of(tmp / "bus", name)] == sent


def test_the_passive_subscriber_tells_when_the_feed_comes_and_goes(tmp):
    process = subprocess.Popen(
        command("passive_subscriber", tmp / "prices", "--idle", 60),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "waiting" in process.stdout.readline()
        run("feed", tmp / "prices", "--seconds", 1, cwd=tmp)
        lines = iter(process.stdout.readline, "")
        assert "connected" in next(line for line in lines if "waiting" not in line)
        assert "the writer is gone" in next(line for line in lines if "records" not in line)
    finally:
        process.kill()
        process.communicate()


def test_a_book_is_rebuilt_from_a_capture_which_is_imported_once(tmp):
    first = run("rebuild_book", tmp / "archive", "--levels", 2, cwd=tmp)
    assert first.startswith("11 records imported\n")
    assert "BTCUSDT: trusted" in first
    assert [line.split() for line in first.splitlines()[-4:]] == [
        ["30000.30000000", "2.20000000", "ask"],
        ["30000.20000000", "2.10000000", "ask"],  # the one below was removed
        ["30000.00000000", "10.50000000", "bid"],  # 105 was the last diff to change it
        ["29999.90000000", "10.60000000", "bid"],
    ]
    again = run("rebuild_book", tmp / "archive", "--levels", 2, cwd=tmp)
    assert again == first.replace("11 records imported", "imported before")


def test_every_example_is_short_enough_to_copy():
    long = {"hot_loop.py", "router_hot_loop.py"}  # recipes with a page of their own
    for path in EXAMPLES.glob("*.py"):
        assert path.name in long or len(path.read_text().splitlines()) < 80, path.name


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
