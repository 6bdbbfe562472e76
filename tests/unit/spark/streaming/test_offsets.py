"""Offsets of a checkpoint: what was written comes back, and nothing else is believed."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapewire.errors import CorruptMetadata, TapewireError, UnsupportedVersion
from tapewire.spark.streaming.offsets import Offset

NUMBERS = st.dictionaries(
    st.text("abcXYZ/:.-_0189", min_size=1, max_size=20), st.integers(0, 2**63 - 1), max_size=5
)


@given(NUMBERS, NUMBERS)
def test_an_offset_survives_the_checkpoint(logs, times):
    offset = Offset("book", logs, times)
    assert Offset.parse(json.loads(json.dumps(offset.to_json())), "book") == offset


def test_equal_offsets_give_equal_text_whatever_their_order():
    one = Offset("records", {"a": 1, "b": 2})
    other = Offset("records", {"b": 2, "a": 1})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ([], "must be an object"),
        (None, "must be an object"),
        ({"v": 1, "logs": {"md": 1}}, "lacks a member: view"),
        ({"v": 1, "view": "records"}, "lacks a member: logs"),
        ({"v": 0, "view": "records", "logs": {}}, "no such version"),
        ({"v": True, "view": "records", "logs": {}}, "v must be of type int"),
        ({"v": 1, "view": "records", "logs": {}, "more": 1}, "unknown member: 'more'"),
        ({"v": 1, "view": "records", "logs": []}, "logs must be of type dict"),
        ({"v": 1, "view": "records", "logs": {"md": -1}}, "must be a whole number: -1"),
        ({"v": 1, "view": "records", "logs": {"md": True}}, "must be a whole number: True"),
        ({"v": 1, "view": "records", "logs": {"md": 1.5}}, "must be a whole number: 1.5"),
        ({"v": 1, "view": "records", "logs": {"md": 2**64}}, "must be a whole number"),
        ({"v": 1, "view": "records", "logs": {"": 1}}, "a name that cannot be"),
        ({"v": 1, "view": "records", "logs": {"a\n": 1}}, "a name that cannot be"),
        ({"v": 1, "view": "records", "logs": {"x" * 5000: 1}}, "a name that cannot be"),
        ({"v": 1, "view": "book", "logs": {}}, "of another view: view='book', asked='records'"),
        ({"v": 1, "view": "records", "logs": {}, "times": {"u": "soon"}}, "times"),
    ],
)
def test_a_changed_checkpoint_is_refused_and_says_why(changed, says):
    with pytest.raises(CorruptMetadata) as error:
        Offset.parse(changed, "records")
    assert says in str(error.value)
    assert "begin with a new one" in error.value.hint


def test_a_checkpoint_of_a_later_release_is_told_apart():
    with pytest.raises(UnsupportedVersion, match="v=2, known=1"):
        Offset.parse({"v": 2, "places": []}, "records")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["v", "view", "logs", "times", "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_json_makes_it_fail_in_another_way(document):
    with contextlib.suppress(TapewireError):
        Offset.parse(document, "records")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Offset("book", {"a": 5}), Offset("book", {"a": 4})),
        (Offset("book", {"a": 5}), Offset("book", {"b": 9})),
        (Offset("book", {}, {"u": 7}), Offset("book", {}, {"u": 6})),
    ],
)
def test_a_range_that_goes_backwards_is_refused(start, end):
    with pytest.raises(CorruptMetadata, match="ends before it begins"):
        end.check_follows(start)


def test_a_range_may_be_empty_and_may_bring_new_logs():
    start = Offset("book", {"a": 5})
    start.check_follows(start)
    Offset("book", {"a": 5, "b": 1}).check_follows(start)
