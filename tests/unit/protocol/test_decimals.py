"""Decimal text to integers: exactly as `decimal`, or refused."""

from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument

scales = st.integers(0, 18)
digits = st.text("0123456789", max_size=25)
numbers = st.builds(
    lambda sign, whole, point, rest, exponent: sign + whole + point + rest + exponent,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-30, 30))),
)


def exactly(text, scale):
    """Return the integer, or the rule that the text violates, by exact arithmetic."""
    with localcontext(prec=200):
        scaled = Decimal(text).scaleb(scale)
        if scaled != scaled.to_integral_value():
            return "must not lose digits"
        value = int(scaled)
    return value if -(2**63) <= value < 2**63 else "must fit 64 bits"


@settings(max_examples=400, deadline=None)
@given(text=numbers, scale=scales)
def test_any_text_is_parsed_as_by_decimal(text, scale):
    if not any(c.isdigit() for c in text.lower().split("e")[0]):
        want = "must be a decimal number"
    else:
        want = exactly(text, scale)
    for given_as in (text, text.encode()):
        try:
            found = market.scaled(given_as, scale)
        except tw.InvalidMessage as error:
            found = next((rule for rule in (want,) if str(rule) in error.message), error.message)
        assert found == want


@settings(max_examples=200, deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1), scale=scales)
def test_unscaled_text_scales_to_the_same_integer(value, scale):
    text = market.unscaled(value, scale)
    assert market.scaled(text, scale) == value
    assert Decimal(text) == Decimal(value).scaleb(-scale)


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1.2.3", "1e", "1e+", "0x1", " 1", "1\n", "٣", "\ud800"]
)
def test_text_that_is_not_a_number_is_refused(text):
    with pytest.raises(tw.InvalidMessage, match="must be a decimal number"):
        market.scaled(text, 2)


def test_floats_are_refused_with_the_remedy():
    with pytest.raises(tw.InvalidMessage, match="parse_float=str"):
        market.scaled(1.5, 2)


def test_ints_are_exact():
    assert market.scaled(15, 1) == 150


@pytest.mark.parametrize("value", [True, False])
def test_booleans_are_no_numbers(value):
    with pytest.raises(tw.InvalidMessage, match="must be text or bytes"):
        market.scaled(value, 1)


@pytest.mark.parametrize("scale", [-1, 19, "2", 1.0])
def test_a_scale_is_from_0_to_18(scale):
    with pytest.raises(tw.InvalidMessage, match="scale"):
        market.scaled("1", scale)


def test_levels_of_text_become_an_array():
    found = market.scaled_levels([["1.5", "2"], ("-0.01", b"1e-3", "more", 4)], 2, 3)
    assert found.tolist() == [[150, 2000], [-1, 1]]
    assert found.dtype == "int64"
    assert market.scaled_levels([], 2, 3).shape == (0, 2)


@pytest.mark.parametrize(
    ("levels", "named"),
    [
        ([["1", "2"], ["1.001", "2"]], "levels[1] price: a number must not lose digits"),
        ([["1", "x"]], "levels[0] size: must be a decimal number: text='x'"),
        ([["1"]], "levels[0]=['1']"),
        (["12"], "levels[0]='12'"),
    ],
)
def test_a_level_that_does_not_fit_is_named(levels, named):
    with pytest.raises(tw.InvalidMessage) as caught:
        market.scaled_levels(levels, 2, 3)
    assert named in caught.value.message


def test_a_column_of_text_becomes_an_array():
    assert market.scaled_many(["1.5", b"-2", 3], 1).tolist() == [15, -20, 30]
    with pytest.raises(tw.InvalidMessage, match=r"^\[2\]: must be a decimal"):
        market.scaled_many(["1", "2", "?"], 1)


def test_an_int_with_more_digits_than_python_formats_is_refused_too():
    huge = 10**5000
    with pytest.raises(tw.errors.InvalidMessage, match="an int of 16610 bits"):
        market.scaled(huge, 2)
    with pytest.raises(tw.errors.InvalidMessage, match="price=an int of 16610 bits"):
        market.l2_diff(Instrument.of("binance", "BTCUSDT"), 1, bids=[(huge, 1)])
    with pytest.raises(tw.errors.InvalidMessage, match="last=an int of 16610 bits"):
        market.l2_diff(Instrument.of("binance", "BTCUSDT"), 1, last=huge)
    assert market.scaled(-(2**63), 0) == -(2**63)
