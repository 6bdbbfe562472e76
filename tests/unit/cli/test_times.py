"""Times as a person types them."""

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
def test_how_long_ago(text, back_ns):
    assert parse_time(text, now_ns=10**18) == 10**18 - back_ns


@pytest.mark.parametrize("text", ["", "-", "-5", "-5x", "5m", "-1.5h", "now", "-m"])
def test_what_is_no_time_is_refused_with_what_would_be_one(text):
    with pytest.raises(ValueError, match=r"not a time: time=.*-5m"):
        parse_time(text)


@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 10**18, 2**63 - 1])
def test_iso_is_read_back_as_it_was(ns):
    assert parse_time(iso(ns)) == ns
