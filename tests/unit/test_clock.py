"""Times as arguments."""

import datetime as dt

import numpy as np
import pytest

from tapewire import _native
from tapewire.clock import to_ns

NOON_NS = 1_709_294_400_000_000_000  # 2024-03-01T12:00:00Z


@pytest.mark.parametrize("number", [0, 1, -1, NOON_NS, 2**63 - 1])
def test_an_int_is_nanoseconds(number):
    assert to_ns(number) == number


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_a_numpy_integer_is_nanoseconds_too(kind):
    got = to_ns(kind(12345))
    assert got == 12345
    assert type(got) is int


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("2024-03-01T12:00:00Z", 0),
        ("2024-03-01 12:00:00+00:00", 0),
        ("2024-03-01T12:00:00.5Z", 500_000_000),
        ("2024-03-01T12:00:00.000001Z", 1_000),
        ("2024-03-01T12:00:00.000000001Z", 1),
        ("2024-03-01T12:00:00.123456789+00:00", 123_456_789),
        ("2024-03-01T14:00:00.123456789+02:00", 123_456_789),
        ("2024-03-01T06:30:00-05:30", 0),
        ("2024-03-01T12:00:00,123456789Z", 123_456_789),
        ("20240301T120000Z", 0),
        ("2024-03-01T12Z", 0),
    ],
)
def test_iso_text_keeps_its_zone_and_every_nanosecond(text, beyond):
    assert to_ns(text) == NOON_NS + beyond


def test_text_before_1970_counts_down():
    assert to_ns("1969-12-31T23:59:59.999999999Z") == -1


@pytest.mark.parametrize("text", ["2024-03-01T12:00:00", "2024-03-01", "2024-03-01T12:00:00.5"])
def test_text_without_a_zone_raises_with_the_remedy(text):
    with pytest.raises(ValueError, match=f"zone.*{text}.*{text}Z"):
        to_ns(text)


def test_text_finer_than_a_nanosecond_raises():
    with pytest.raises(ValueError, match="nanosecond"):
        to_ns("2024-03-01T12:00:00.0000000001Z")


@pytest.mark.parametrize("text", ["", "noon", "2024-13-01T00:00:00Z", "12:00Z", "1709294400"])
def test_text_that_is_not_a_time_raises(text):
    with pytest.raises(ValueError, match=r"isoformat|month|zone"):
        to_ns(text)


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-01T12:00:00.Z",
        "2024-03-01T12.5:00:00Z",
        "2024-03-01T12.5Z",
        "2024.5-03-01T12:00:00Z",
    ],
)
def test_a_fraction_of_anything_but_seconds_raises(text):
    with pytest.raises(ValueError, match="2024"):
        to_ns(text)


def test_an_aware_datetime_keeps_its_zone_and_microseconds():
    zone = dt.timezone(dt.timedelta(hours=-7, minutes=-30))
    assert to_ns(dt.datetime(2024, 3, 1, 12, 0, 0, 7, tzinfo=dt.UTC)) == NOON_NS + 7_000
    assert to_ns(dt.datetime(2024, 3, 1, 4, 30, 0, 7, tzinfo=zone)) == NOON_NS + 7_000
    assert to_ns(dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)) == -1_000


def test_a_naive_datetime_raises():
    with pytest.raises(ValueError, match="zone"):
        to_ns(dt.datetime(2024, 3, 1, 12))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_datetime64_of_every_unit_is_utc(unit):
    assert to_ns(np.datetime64("2024-03-01T12:00:00", unit)) == NOON_NS


def test_datetime64_nat_raises():
    with pytest.raises(ValueError, match="NaT"):
        to_ns(np.datetime64("NaT"))


def test_datetime64_beyond_what_nanoseconds_hold_raises():
    with pytest.raises((ValueError, OverflowError)):
        to_ns(np.datetime64("2500-01-01", "s"))


@pytest.mark.parametrize(
    "wrong", [None, 1.0, True, b"2024-03-01T12:00:00Z", dt.date(2024, 3, 1), []]
)
def test_other_types_raise_a_type_error(wrong):
    with pytest.raises(TypeError, match="not a time"):
        to_ns(wrong)


def test_the_wall_clock_can_be_shifted_for_tests():
    before = _native.wall_clock_ns()
    _native.shift_wall_clock(3_600 * 10**9)
    try:
        assert _native.wall_clock_ns() - before >= 3_600 * 10**9
    finally:
        _native.shift_wall_clock(-3_600 * 10**9)
    assert _native.wall_clock_ns() - before < 3_600 * 10**9
