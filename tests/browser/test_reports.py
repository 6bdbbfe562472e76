"""The reports of jobs in a real browser: on a desktop and on a phone, light and dark."""

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs pyspark")
pytest.importorskip("playwright", reason="needs playwright")

from tapewire.page import write_file
from tapewire.quality import QualityLimits
from tapewire.quality.report import quality_page
from tests.unit.page.test_reports import START, day_report, facts, picture_of

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1200, "height": 900}


@pytest.fixture
def report(tmp):
    """A page with findings, long text and plots, as a file."""
    what = "1 gap in a stream with a long name, " + "x" * 60
    times = [
        {"stream": "book", "timestamp_ns": START + i * 300 * 10**9, "records": 5}
        | {"least_ns": 10**6, "p50_ns": 2 * 10**6, "p99_ns": 10**7 * (i + 1)}
        for i in range(8)
    ]
    day = day_report(
        facts=facts(book_events=50, book_begin_ns=START, book_ns=49 * 10**9, gaps=1),
        findings=[{"kind": "gaps", "stream": "book", "count": 1, "first_ns": START, "what": what}],
        spans=[{"state": "crossed", "begin_ns": START + 10**9, "end_ns": START + 3 * 10**9}],
        clock_times=times,
        picture=picture_of(),
    )
    text = quality_page([day], "archive/" + "long/" * 30, QualityLimits())
    return write_file(tmp / "report.html", text).as_uri()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_report_fits_the_screen_and_fetches_nothing(report, open_page, size):
    page = open_page("about:blank", viewport=size)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report)
    assert asked == [report]
    # Wide tables and plots scroll; the page itself does not.
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert page.locator("svg").count() == 4
    text = page.locator("svg text.tick").first.bounding_box()
    assert text["height"] >= 10, "labels are legible"


def luminance(colour):
    red, green, blue = (int(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3])
    parts = np.array([red, green, blue]) / 255
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(report, open_page, scheme):
    page = open_page(report, color_scheme=scheme, viewport=DESKTOP)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(background) > 0.5) == (scheme == "light")
    for selector, key in (("p", "color"), ("td", "color"), ("svg .tick", "fill")):
        text = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{key}")
        light, dark = sorted([luminance(background), luminance(text)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, selector
