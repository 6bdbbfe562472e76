"""Offsets of a checkpoint: they survive a round trip, and anything else is refused."""

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
    ("changed", "reason"),
    [
        ([], "must be an object"),
        (None, "must be an object"),
        ({"v": 1, "logs": {"md": 1}}, "lacks a member: view"),
        ({"v": 1, "view": "records"}, "lacks a member: logs"),
        ({"v": 0, "view": "records", "logs": {}}, "no such version"),
        ({"v": True, "view": "records", "logs": {}}, "v must be of type int"),
        ({"v": 1, "view": "records", "logs": {}, "more": 1}, "unknown member: 'more'"),
        ({"v": 1, "view": "records", "logs": []}, "logs must be of type dict"),
        ({"v": 1, "view": "records", "logs": {"md": -1}}, f"an integer, 0 to {2**63}: -1"),
        ({"v": 1, "view": "records", "logs": {"md": True}}, f"an integer, 0 to {2**63}: True"),
        ({"v": 1, "view": "records", "logs": {"md": 1.5}}, f"an integer, 0 to {2**63}: 1.5"),
        ({"v": 1, "view": "records", "logs": {"md": 2**64}}, "must be an integer"),
        ({"v": 1, "view": "records", "logs": {"": 1}}, "an invalid name"),
        ({"v": 1, "view": "records", "logs": {"a\n": 1}}, "an invalid name"),
        ({"v": 1, "view": "records", "logs": {"x" * 5000: 1}}, "an invalid name"),
        ({"v": 1, "view": "book", "logs": {}}, "to another view: view='book', query='records'"),
        ({"v": 1, "view": "records", "logs": {}, "times": {"u": "soon"}}, "times"),
    ],
)
def test_a_changed_checkpoint_is_refused_with_the_reason(changed, reason):
    with pytest.raises(CorruptMetadata) as error:
        Offset.parse(changed, "records")
    assert reason in str(error.value)
    assert "start with a new one" in error.value.hint


def test_a_checkpoint_of_a_later_release_has_its_own_error():
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
def test_no_json_raises_another_kind_of_error(document):
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
def test_a_range_that_ends_before_its_start_is_refused(start, end):
    with pytest.raises(CorruptMetadata, match="ends before it begins"):
        end.check_follows(start)


def test_a_range_may_be_empty_and_may_have_new_logs():
    start = Offset("book", {"a": 5})
    start.check_follows(start)
    Offset("book", {"a": 5, "b": 1}).check_follows(start)
