"""Reports from small tables: complete pages, whatever is missing."""

import re

import numpy as np
import pytest

from tapewire.page import plots
from tapewire.page.features_report import DayFeatures, FeatureFacts, features_page
from tapewire.page.picture import PICTURE_POINTS, BookPicture, span_for
from tapewire.page.plots import PlotMark, Series
from tapewire.quality import QualityLimits
from tapewire.quality.findings import TABLES
from tapewire.quality.report import DayReport, quality_page

START = 1_700_000_000 * 10**9
FETCHES = re.compile(r"(src|href)=|url\((?!#)|@import|https?:|\bnan\b|\binf\b")


def picture_of(points=50, name="SYM", *, empty=()):
    """A moving book, without levels at the points in `empty`."""
    columns = {
        "timestamp_ns": [START + i * 10**9 for i in range(points)],
        "trusted": [i not in empty for i in range(points)],
        "price_scale": [2] * points,
        "size_scale": [0] * points,
    }
    for side, way in (("bid", -1), ("ask", 1)):
        columns[f"{side}_prices"] = [
            [] if i in empty else [10_000 + i % 7 + way * (1 + n) for n in range(5)]
            for i in range(points)
        ]
        columns[f"{side}_sizes"] = [
            [] if i in empty else [10 * (n + 1) for n in range(5)] for i in range(points)
        ]
    return BookPicture.of(name, columns)


def facts(**values):
    return dict.fromkeys(TABLES["days"].names, 0) | values


def day_report(**values):
    rows = {"findings": [], "gaps": [], "spans": [], "clocks": [], "clock_times": []}
    named = {"venue": "venue", "symbol": "SYM", "date": "2023-11-14", "facts": facts()}
    return DayReport(**named | rows | values)


def test_prices_and_sizes_of_a_picture_are_in_their_units():
    picture = picture_of(3)
    assert picture.best("bid").tolist() == [99.99, 100.0, 100.01]
    assert picture.best("ask").tolist() == pytest.approx([100.01, 100.02, 100.03])
    assert picture.spread_bps[0] == pytest.approx(2.0)


def test_a_book_without_levels_interrupts_the_lines_without_nan():
    picture = picture_of(20, empty={5, 6, 7})
    for svg in (plots.book(picture), plots.spread(picture)):
        assert not FETCHES.search(svg)
    assert len(re.findall(r"M\d", plots.spread(picture))) == 2


@pytest.mark.parametrize("empty", [set(), set(range(20))], ids=["all there", "none there"])
def test_a_picture_of_any_book_can_be_drawn(empty):
    picture = picture_of(20, empty=empty)
    assert "<svg" in plots.book(picture, [PlotMark(START, START + 10**9)])
    assert "<svg" in plots.spread(picture)


@pytest.mark.parametrize("seconds", [0.05, 3, 61, 3600, 86_400, 40 * 86_400])
def test_a_picture_has_no_more_points_than_the_limit(seconds):
    from tapewire.replay._features import parse_span

    span = parse_span(span_for(START, START + int(seconds * 1e9)))
    assert seconds * 1e9 / span <= PICTURE_POINTS


@pytest.mark.parametrize("seconds", [0, 0.004, 1, 47, 600, 5_000, 86_400, 4 * 86_400, 10**8])
def test_the_time_axis_has_a_few_labels_in_order(seconds):
    _, ticks = plots.time_axis(START, START + int(seconds * 1e9))
    times = [time for time, _ in ticks]
    assert times == sorted(times)
    assert len(ticks) <= 9
    assert all(START <= time <= START + seconds * 1e9 for time in times)


def test_marks_outside_the_picture_are_not_drawn():
    inside = PlotMark(START + 10**9, START + 2 * 10**9)
    outside = PlotMark(START - 10**12, START - 10**11)
    assert plots.book(picture_of(), [inside, outside]).count('class="flaw') == 1


def test_ten_thousand_marks_make_no_more_rectangles_than_there_are_pixels():
    marks = [PlotMark(START + i * 4_000_000, START + i * 4_000_000) for i in range(10_000)]
    marks += [PlotMark(START + 45 * 10**9, START + 46 * 10**9)]
    assert plots.book(picture_of(), marks).count('class="flaw') == 2


def test_a_page_of_a_thousand_symbols_is_of_reasonable_size():
    span = {"state": "crossed", "begin_ns": 0, "end_ns": 0}
    spans = [span | {"begin_ns": START + i, "end_ns": START + i} for i in range(0, 10**9, 10**6)]
    days = [
        day_report(
            symbol=f"SYMBOL-OF-A-LONG-NAME-{n:04d}-PERPETUAL",
            facts=facts(book_events=50, book_begin_ns=START, book_ns=49 * 10**9),
            spans=spans,
        )
        for n in range(1000)
    ]
    text = quality_page(days, "archive/", QualityLimits())
    assert len(text) < 1 << 20
    assert "The first 40 of 1,000 symbols" in text


def test_names_from_data_are_text_and_never_markup():
    name = "<script>alert('x')</script>\"&"
    gap = {"stream": name, "kind": name, "first": 1, "last": 2, "seq": 3, "cause": name}
    clock = dict.fromkeys(TABLES["clocks"].names, 0) | {"stream": name}
    times = [{"stream": name, "timestamp_ns": START + i * 3 * 10**11} for i in range(5)]
    day = day_report(
        venue=name,
        symbol=name,
        facts=facts(book_events=1, book_begin_ns=START, book_ns=10**9),
        findings=[{"kind": name, "stream": name, "count": 1, "first_ns": 1, "what": name}],
        gaps=[{**gap, "timestamp_ns": START, "action": name}],
        clocks=[clock],
        clock_times=[row | {"least_ns": 1, "p50_ns": 2, "p99_ns": 3} for row in times],
        picture=picture_of(name=name),
    )
    drawn = DayFeatures(name, 2, [], {}, picture_of(name=name))
    pages = [
        quality_page([day], name, QualityLimits(), failed=[(name, name)]),
        features_page([FeatureFacts(name, name, name, 1, 1)], [drawn], [], name, name),
    ]
    for text in pages:
        assert "<script" not in text
        assert "&lt;script&gt;" in text


def test_a_page_without_books_has_no_text_about_them():
    text = quality_page([day_report()], "archive/", QualityLimits())
    assert "<b>100%" not in text
    assert "<b>never" not in text


def test_a_quality_page_shows_findings_gaps_and_plots():
    gap = {"stream": "book", "kind": "venue", "first": 5, "last": 7, "seq": 3, "cause": "lost"}
    finding = {"kind": "gaps", "stream": "book", "count": 1, "first_ns": START, "what": "1 gap <b>"}
    day = day_report(
        facts=facts(book_events=50, book_begin_ns=START, book_ns=49 * 10**9, gaps=1),
        findings=[finding],
        gaps=[{**gap, "timestamp_ns": START + 10**9, "action": "untrusted"}],
        spans=[
            {"state": "untrusted", "begin_ns": START + 10**9, "end_ns": START + 3 * 10**9},
            {"state": "start", "begin_ns": START, "end_ns": START + 10**9},
        ],
        picture=picture_of(),
    )
    text = quality_page([day, day_report()], "archive/", QualityLimits())
    assert "1 finding in 1 of 2" in text
    assert "1 gap &lt;b&gt;" in text
    assert "5 … 7" in text
    assert text.count("<svg") == 3
    assert 'class="flaw' in text
    assert not FETCHES.search(text)


def test_a_quality_page_without_findings_has_a_note():
    days = [day_report(facts=facts(records=1))]
    text = quality_page(days, "archive/", QualityLimits())
    assert "No findings" in text
    assert "<b>1</b><span>record</span>" in text


@pytest.mark.parametrize("days", [[], [day_report()]], ids=["no day", "an empty day"])
def test_a_quality_page_without_records_does_not_claim_success(days):
    text = quality_page(days, "archive/", QualityLimits())
    assert "There are no records" in text
    assert "<svg" not in text


def test_parts_that_failed_are_on_the_page():
    text = quality_page([], "archive/", QualityLimits(), failed=[("p", "why")])
    assert "1 part failed" in text
    assert "<td>why</td>" in text


def test_a_features_page_has_a_plot_for_each_feature_with_values():
    times = START + np.arange(30) * 10**9
    values = np.sin(np.arange(30.0))
    none = np.full(30, np.nan)
    series = [
        Series("mid", times, values - 1, values, values + 1),
        Series("vwap_5s", times, none, none, none),
    ]
    day = DayFeatures("SYM · venue", 30, series, {"mid": 1.0, "vwap_5s": 0.0}, picture_of(30))
    written = [FeatureFacts("venue", "SYM", "2023-11-14", 30, 2_048)]
    text = features_page(written, [day], ["mid", "vwap_5s"], "1s", "clean/")
    assert text.count("<svg") == 3
    assert ">mid</text>" in text
    assert ">vwap_5s</text>" not in text
    assert "weighted by size" in text
    assert ">1s<" in text
    assert not FETCHES.search(text)


def test_a_features_page_without_data_is_a_page():
    assert "<table>" in features_page([], [], ["mid"], "event", "clean/")
