"""The live page in a real browser."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tapewire as tw
from tapewire.monitor import Limits, Watch
from tapewire.monitor.web import LivePage

pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import expect

SHOTS = Path(__file__).resolve().parents[2] / "build" / "browser"
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def serve(tmp):
    """The page of `tmp/bus`, with frequent samples."""
    with LivePage(Watch(tmp / "bus", limits=Limits(lag_records=500)), interval=0.1) as page:
        yield page


def row(page, name):
    return page.locator("#queue-table tbody tr").filter(has_text=name)


def test_it_shows_the_queues_of_a_live_bus_and_updates_them(writer, serve, open_page):
    page = open_page(serve.url)
    expect(page.locator("#link")).to_have_text("live · every 100 ms")
    expect(row(page, "md").locator(".state")).to_have_text("live")
    writer.send("1000")
    expect(row(page, "md")).to_contain_text("999")
    writer.send("1234")
    expect(row(page, "md")).to_contain_text("2,233")
    expect(page.locator("#sum-writers")).to_have_text("1 of 1")


def test_readers_are_shown_with_their_lag_and_its_history(writer, serve, tmp, open_page):
    writer.send("400")
    writer.line()
    with tw.open_subscriber(tmp / "bus" / "md", "strategy") as reader:
        page = open_page(serve.url)
        expect(page.locator("#detail-title")).to_have_text("md")
        line = page.locator("#reader-table tbody tr")
        expect(line).to_contain_text("strategy")
        expect(line.locator("td").nth(1)).to_have_text("400")
        reader.read_batch(300)
        reader.commit()
        expect(line.locator("td").nth(1)).to_have_text("100")
        # The line of the plot goes down from 400 to 100: two levels at least.
        drawn = page.locator("#lag-plot path.line").get_attribute("d")
        assert len({y for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn)}) >= 2
        page.locator("#lag-plot > svg").hover()
        expect(page.locator("#lag-plot .tip")).to_contain_text("s ago")
        page.get_by_role("button", name="bytes", exact=True).click()
        expect(page.locator("#lag-plot > svg")).to_have_attribute("aria-label", re.compile("KiB"))


def test_a_killed_writer_raises_an_alert_with_a_remedy(writer, serve, open_page):
    page = open_page(serve.url)
    expect(page.locator("#all-well")).to_be_visible()
    writer.kill()
    alert = page.locator("#alerts li")
    expect(alert).to_have_attribute("data-severity", "critical")
    expect(alert).to_contain_text("md: the writer")
    expect(alert).to_contain_text("start it again")
    expect(row(page, "md").locator(".state")).to_have_text("dead")
    expect(page).to_have_title("(1) tapewire")


def test_new_queues_are_shown_and_removed_ones_are_not(writer, serve, tmp, open_page):
    page = open_page(serve.url)
    expect(row(page, "md")).to_be_visible()
    tw.open_publisher(tmp / "bus" / "orders", segment_bytes=8192).close()
    expect(row(page, "orders").locator(".state")).to_have_text("closed")
    shutil.rmtree(tmp / "bus" / "orders")
    expect(row(page, "orders")).to_have_count(0)
    expect(row(page, "md")).to_be_visible()


def start(bus, port="0"):
    """`tapewire monitor --web` in a separate process; returns it and its URL."""
    command = [sys.executable, "-m", "tapewire.cli", "monitor", bus, "--web", "--json"]
    process = subprocess.Popen(
        [*command, "--port", port, "--interval", "0.1"], stdout=subprocess.PIPE
    )
    return process, json.loads(process.stdout.readline())["url"]


def stop(process):
    process.kill()
    process.communicate()


def test_a_lost_connection_is_visible_and_restored(writer, tmp, open_page):
    process, url = start(tmp / "bus")
    try:
        page = open_page(url, expected_errors=True)
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        stop(process)
        expect(page.locator("#link")).to_have_text("connection lost")
        expect(page.locator("#lost")).to_contain_text("Values are from")
        writer.send("77")
        process, _ = start(tmp / "bus", url.rpartition(":")[2].strip("/"))
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        expect(page.locator("#lost")).to_be_hidden()
        expect(row(page, "md")).to_contain_text("76")
    finally:
        stop(process)


@pytest.mark.long  # it waits for a timeout of the page
def test_a_monitor_that_hangs_is_visible_too(writer, tmp, open_page):
    process, url = start(tmp / "bus")
    try:
        page = open_page(url, expected_errors=True)
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        process.send_signal(signal.SIGSTOP)
        expect(page.locator("#lost")).to_contain_text("no data from the monitor", timeout=30_000)
        process.send_signal(signal.SIGCONT)
        expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=30_000)
    finally:
        stop(process)


def test_hostile_names_are_text(serve_hostile, open_page):
    name, page_of = serve_hostile
    page = open_page(page_of.url)
    expect(page.locator("#queue-table .name").first).to_have_text(name)
    row(page, "onerror").click()
    expect(page.locator("#detail-title")).to_have_text(name)
    expect(page.locator("#alerts li").first).to_contain_text(name)
    assert page.locator("main img, main script, main b, main iframe").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.fixture
def serve_hostile(tmp):
    name = "<img src=x onerror=window.hacked=1><b>&amp;\"'"
    queue = tmp / "bus" / name
    with tw.open_publisher(queue, segment_bytes=8192) as writer:
        writer.append(1, b"x")
        tw.open_subscriber(queue, "r").close()
        meta = queue / "readers" / "r.meta"
        shutil.copy(meta, meta.with_name("<img src=x onerror=window.hacked=2>.meta"))
        with LivePage(Watch(tmp / "bus"), interval=0.1) as page:
            yield name, page


@pytest.fixture
def several(tmp):
    """A bus with one of everything, for screenshots."""
    names = ["streams/raw/binance_spot/queue", "orders/queue/alpha/orders_out", "orders/x"]
    writers = [tw.open_publisher(tmp / "bus" / name, segment_bytes=1 << 20) for name in names]
    writers[0].append_batch(1, [bytes(100)] * 900)
    writers[1].append_batch(1, [bytes(100)] * 50)
    reader = tw.open_subscriber(tmp / "bus" / names[0], "book_builder")
    tw.open_subscriber(tmp / "bus" / names[1], "router").close()
    yield
    for one in [reader, *writers]:
        one.close()


@pytest.mark.usefixtures("several")
def test_an_address_without_a_valid_name_selects_the_first_queue(serve, open_page):
    page = open_page(serve.url + "#%E0%A4%A")
    expect(page.locator("#detail-title")).to_have_text("orders/queue/alpha/orders_out")


@pytest.mark.usefixtures("several")
def test_keys_filter_and_sort(serve, open_page):
    page = open_page(serve.url)
    names = page.locator("#queue-table .name")
    expect(names).to_have_count(3)
    page.keyboard.press("/")
    page.keyboard.type("ORDERS")
    expect(names).to_have_count(2)
    expect(page.locator("#queues-count")).to_have_text("2 of 3")
    page.keyboard.press("Escape")
    expect(names).to_have_count(3)
    page.get_by_role("button", name="Last seq").press("Enter")
    expect(names.first).to_have_text("streams/raw/binance_spot/queue")
    expect(page.get_by_role("columnheader", name="Last seq")).to_have_attribute(
        "aria-sort", "descending"
    )
    names.nth(1).press("Enter")
    expect(page.locator("#detail-title")).to_have_text("orders/queue/alpha/orders_out")
    page.reload()
    expect(page.locator("#detail-title")).to_have_text("orders/queue/alpha/orders_out")


CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    paint.clearRect(0, 0, 1, 1); paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = rgba(getComputedStyle(node).backgroundColor);
      if (color[3] === 255) return color;
    }
    return rgba("white");
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || !node.checkVisibility() || node.closest("noscript, .hidden, .skip")) continue;
    const style = getComputedStyle(node);
    const text = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgba(text)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    found.push([ratio, node.outerHTML.slice(0, 200)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_contrast(serve, open_page, scheme):
    page = open_page(serve.url, color_scheme=scheme)
    expect(page.locator("#reader-table tbody tr, #no-readers")).not_to_have_count(0)
    row(page, "raw").click()
    expect(page.locator("#alerts li")).to_have_count(2)
    contrasts = page.evaluate(CONTRAST)
    assert len(contrasts) > 40
    assert contrasts[0][0] >= 4.5, contrasts[:3]
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(243, 245, 247)"
    assert light == (scheme == "light")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"monitor-{scheme}.png")


@pytest.mark.usefixtures("several")
def test_the_selected_theme_is_remembered(serve, open_page):
    page = open_page(serve.url, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Theme: auto").click()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(ground) != dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == dark


@pytest.mark.usefixtures("several")
def test_on_a_phone_nothing_is_wider_than_the_screen(serve, open_page):
    page = open_page(serve.url, viewport=PHONE, color_scheme="dark")
    expect(row(page, "raw")).to_be_visible()
    row(page, "raw").click()
    expect(page.locator("#reader-table tbody tr")).to_be_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    cut_off = "[...document.querySelectorAll('.scroll')].some((b) => b.scrollWidth > b.clientWidth)"
    assert page.evaluate(cut_off) is False
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "monitor-phone.png", full_page=True)
