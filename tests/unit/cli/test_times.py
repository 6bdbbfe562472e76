"""Times on the command line."""

import pytest

from tapewire.cli.times import iso, parse_time


@pytest.mark.parametrize(
    ("text", "back_ns"),
    [
        ("-5m", 300 * 10**9),
        ("-1h30m", 5400 * 10**9),
        ("-2d", 172_800 * 10**9),
        ("-10s", 10**10),
        ("-250ms", 250 * 10**6),
        ("-1m1ms1us1ns", 60 * 10**9 + 1_001_001),
    ],
)
def test_a_span_before_now(text, back_ns):
    assert parse_time(text, now_ns=10**18) == 10**18 - back_ns


@pytest.mark.parametrize("text", ["", "-", "-5", "-5x", "5m", "-1.5h", "now", "-m"])
def test_an_invalid_time_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"invalid time: time=.*-5m"):
        parse_time(text)


@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 10**18, 2**63 - 1])
def test_iso_text_parses_to_the_same_time(ns):
    assert parse_time(iso(ns)) == ns


@pytest.mark.parametrize(
    "text", ["-99999999d", str(2**63), "0001-01-01T00:00Z", "9999-12-31T00:00Z"]
)
def test_a_time_out_of_range_is_refused(text):
    with pytest.raises(ValueError, match=r"time out of range: time=.*1677-.* to 2262-"):
        parse_time(text)
