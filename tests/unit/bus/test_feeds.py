"""router.toml: all that is missing in one error, and nothing misspelt that goes unnoticed."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire import bus


@pytest.fixture
def load(tmp, layout):
    def from_text(text):
        (tmp / "router.toml").write_text(text)
        return bus.load_feeds(tmp / "router.toml", layout)

    return from_text


def make(queue):
    tw.open_publisher(queue, segment_bytes=8192, preallocate=False).close()


def test_feeds_come_in_the_order_of_the_file(load, layout, tmp):
    make(layout.streams.raw("b"))
    make(tmp / "other" / "a")
    feeds = load('[[feed]]\nvenue = "b"\n[[feed]]\nvenue = "a"\npath = "other/a"')
    assert feeds == [
        bus.Feed("b", layout.streams.raw("b"), required=True, present=True),
        bus.Feed("a", tmp / "other" / "a", required=True, present=True),
    ]


def test_one_error_names_every_missing_feed_where_it_was_looked_for_and_what_to_do(
    load, layout, tmp
):
    make(layout.streams.raw("there"))
    (layout.streams.raw("empty")).mkdir(parents=True)
    with pytest.raises(bus.MissingFeeds) as caught:
        load(
            '[[feed]]\nvenue = "there"\n[[feed]]\nvenue = "gone"\n'
            '[[feed]]\nvenue = "empty"\n[[feed]]\nvenue = "far"\npath = "/nowhere/queue"'
        )
    error = caught.value
    assert isinstance(error, FileNotFoundError)
    assert [feed.venue for feed in error.missing] == ["gone", "empty", "far"]
    for place in (layout.streams.raw("gone"), layout.streams.raw("empty"), "/nowhere/queue"):
        assert f"'{place}'" in str(error)
    assert str(tmp / "router.toml") in str(error)
    assert "start the feed first" in error.hint


def test_a_feed_that_is_not_required_may_be_missing(load):
    (feed,) = load('[[feed]]\nvenue = "later"\nrequired = false')
    assert not feed.present


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no feed"),
        ("feed = 3", "no feed"),
        ("feed = [3]", "must be a table"),
        ('[feed]\nvenue = "x"', "no feed"),
        ('[[feeds]]\nvenue = "x"', r"'feeds'.*did you mean 'feed'"),
        ('[[feed]]\nvenu = "x"', "number 1 has an unknown key: 'venu'.*did you mean 'venue'"),
        ('[[feed]]\nvenue = "x"\npresent = true', "'present'.*known are: path, required, venue"),
        ('[[feed]]\npath = "x"', "number 1 has no venue"),
        ('[[feed]]\nvenue = "a/b"', "number 1: not a valid venue.*for example 'ab'"),
        ("[[feed]]\nvenue = 3", "must be text"),
        ('[[feed]]\nvenue = "x"\npath = 3', "path must be text"),
        ('[[feed]]\nvenue = "x"\nrequired = "yes"', "required must be true or false"),
        ('[[feed]]\nvenue = "x"\n[[feed]]\nvenue = "x"', "named twice: venue='x'"),
        ("[[feed", "not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_the_file(load, tmp, text, says):
    with pytest.raises(tw.InvalidOption, match=says) as caught:
        load(text)
    assert caught.value.path == str(tmp / "router.toml")


def test_a_file_that_is_not_there_or_no_text(tmp, layout):
    with pytest.raises(FileNotFoundError):
        bus.load_feeds(tmp / "router.toml", layout)
    (tmp / "router.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(tw.InvalidOption, match="not TOML"):
        bus.load_feeds(tmp / "router.toml", layout)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(lambda t: f"[[feed]]\n{t}".encode())
)
def test_a_hostile_file_is_a_typed_error(tmp, layout, content):
    (tmp / "router.toml").write_bytes(content)
    with contextlib.suppress(tw.TapewireError):
        bus.load_feeds(tmp / "router.toml", layout)
