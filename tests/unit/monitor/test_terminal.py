"""The full-screen view, driven by Textual's pilot."""

import asyncio
import time

import pytest

from tapewire.monitor import Limits
from tests.support.statuses import queue_status, reader_status

textual = pytest.importorskip("textual", reason="needs textual")


@pytest.fixture
def busy(bus):
    """Three queues; one has a reader that lags far behind."""
    bus["a/md"] = queue_status(last_seq=10, disk_bytes=1 << 20, readers=(reader_status("fast"),))
    slow = reader_status("slow", lag_records=5000, lag_bytes=320_000, lag_seconds=30.0)
    bus["b/orders"] = queue_status(
        last_seq=20, disk_bytes=3 << 20, readers=(reader_status("router"), slow)
    )
    bus["c/fills"] = queue_status(last_seq=30, disk_bytes=2 << 20, alive=False)
    return bus


def drive(bus, steps, size=(80, 24), interval=1000.0, **options):
    """Run `await steps(app, pilot)` inside the application."""
    from tapewire.monitor.terminal import LiveView

    async def run():
        app = LiveView(bus.watch(limits=Limits(writer_ttl=1e9)), interval=interval, **options)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.snapshot is not None)
            await steps(app, pilot)

    asyncio.run(run())


async def until(pilot, predicate):
    for _ in range(500):
        await pilot.pause()
        if predicate():
            return
        await asyncio.sleep(0.01)
    pytest.fail("condition not met")


def screen(app):
    """Return the text of the screen, line by line."""
    return [
        "".join(segment.text for segment in line) for line in app.screen._compositor.render_strips()
    ]


def names(app):
    return [row.key.value for row in app.query_one("#queues").ordered_rows]


def test_at_80_columns_every_column_and_pane_is_visible(busy):
    async def steps(app, pilot):
        await pilot.pause()
        text = "\n".join(screen(app))
        for word in ("queue", "writer", "rec/s", "bytes/s", "last seq", "lag", "disk"):
            assert word in text, word
        assert "1.0 MiB" in text
        assert "Readers 1 of a/md" in text
        assert "Alerts 2" in text
        assert "q Quit" in text
        assert all(len(line) <= 80 for line in screen(app))

    drive(busy, steps)


def test_a_long_name_is_shortened_for_the_numbers(bus):
    name = "streams/clean/binance_spot/" + "X" * 60 + "/book/queue"
    bus[name] = queue_status(last_seq=123_456_789)

    async def steps(app, pilot):
        await pilot.pause()
        (row,) = [line for line in screen(app) if "123456789" in line]
        assert "…" in row
        assert "/book/queue" in row
        assert row.rstrip().endswith("1.0 MiB")

    drive(bus, steps)


def test_arrows_select_the_queue_whose_readers_are_shown(busy):
    async def steps(app, pilot):
        await pilot.press("down")
        await until(pilot, lambda: any("Readers 2 of b/orders" in line for line in screen(app)))
        (slow,) = [line for line in screen(app) if line.split()[:2] == ["slow", "live"]]
        for part in ("live", "5.0k", "312 KiB", "30.0 s", "█"):
            assert part in slow

    drive(busy, steps)


def test_s_sorts_and_the_cursor_stays_with_its_queue(busy):
    async def steps(app, pilot):
        await pilot.press("down", "down")
        orders = []
        for _ in range(4):
            orders.append(names(app))
            assert app.query_one("#queues").chosen == "c/fills"
            await pilot.press("s")
        by_name, _by_rate, by_lag, by_disk = orders
        assert by_name == ["a/md", "b/orders", "c/fills"]
        assert by_lag[0] == "b/orders"
        assert by_disk == ["b/orders", "c/fills", "a/md"]

    drive(busy, steps)


def test_slash_filters_and_escape_shows_all_again(busy):
    async def steps(app, pilot):
        await pilot.press("slash", *"ORD", "enter")
        assert names(app) == ["b/orders"]
        await pilot.press("escape")
        assert names(app) == ["a/md", "b/orders", "c/fills"]
        await pilot.press("s")  # the table has the keyboard focus again
        assert "by rate" in "\n".join(screen(app))

    drive(busy, steps)


def test_p_pauses_and_resumes_the_display(busy):
    def last_seq(app):
        return app.snapshot.queue("a/md").last_seq

    async def steps(app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "paused" in screen(app)[0])
        await pilot.pause(0.1)  # the sample in progress has ended
        before = app.snapshot
        busy["a/md"] = queue_status(last_seq=11)
        await pilot.pause(0.1)
        assert app.snapshot is before
        await pilot.press("p")
        await until(pilot, lambda: last_seq(app) == 11)
        await until(pilot, lambda: "paused" not in screen(app)[0])

    drive(busy, steps, interval=0.1)


def test_q_quits(busy):
    async def steps(app, pilot):
        await pilot.press("q")
        assert app._exit

    drive(busy, steps)


def test_alerts_have_a_text_and_a_remedy(busy):
    async def steps(app, pilot):
        text = " ".join(" ".join(screen(app)).split())
        assert "critical c/fills: the writer (pid 4711) ended without closing the queue" in text
        assert "→ start it again" in text

    drive(busy, steps, size=(160, 40))


def test_wide_terminals_show_queues_and_readers_side_by_side(busy):
    async def steps(app, pilot):
        await pilot.pause()
        assert any("Queues 3" in line and "Readers 1" in line for line in screen(app))
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not any("Queues 3" in line and "Readers 1" in line for line in screen(app))

    drive(busy, steps, size=(160, 40))


def test_t_changes_the_theme(busy):
    async def steps(app, pilot):
        assert app.theme == "textual-light"
        await pilot.press("t")
        assert app.theme == "textual-dark"

    drive(busy, steps, light=True)


def test_names_are_never_markup(bus):
    name = "[red]md[/] [@click=app.quit]x"
    bus[name] = queue_status(readers=(reader_status(name),), problems=(name,))

    async def steps(app, pilot):
        await pilot.pause()
        text = "\n".join(screen(app))
        assert text.count(name) == 5  # queue, title, reader, and two in the alert

    drive(bus, steps, size=(180, 40))


def test_slow_samples_do_not_accumulate(busy):
    async def steps(app, pilot):
        sample = app._watch.sample
        inside = []
        most = 0
        looks = 0

        def slow():
            nonlocal most, looks
            inside.append(1)
            looks += 1
            most = max(most, len(inside))
            time.sleep(0.05)
            inside.pop()
            return sample()

        app._watch.sample = slow
        await until(pilot, lambda: looks >= 3)
        assert most == 1

    drive(busy, steps, interval=0.01)


def test_a_removed_bus_is_reported_and_may_be_created_again(busy):
    async def steps(app, pilot):
        find = app._watch._find

        def gone(root, on_error):
            raise FileNotFoundError(2, "no such directory", root)

        app._watch._find = gone
        await until(pilot, lambda: "no such directory" in screen(app)[0])
        app._watch._find = find
        await until(pilot, lambda: "no such directory" not in screen(app)[0])

    drive(busy, steps, interval=0.1, size=(200, 30))
