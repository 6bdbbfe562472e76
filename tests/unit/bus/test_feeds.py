"""router.toml: one error for all missing feeds, and no misspelled key is ignored."""

import contextlib
import os

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


def test_feeds_have_the_order_of_the_file(load, layout, tmp):
    make(layout.streams.raw("b"))
    make(tmp / "other" / "a")
    feeds = load('[[feed]]\nvenue = "b"\n[[feed]]\nvenue = "a"\npath = "other/a"')
    assert feeds == [
        bus.Feed("b", layout.streams.raw("b"), required=True, present=True),
        bus.Feed("a", tmp / "other" / "a", required=True, present=True),
    ]


def test_one_error_names_every_missing_feed_with_its_path_and_the_remedy(load, layout, tmp):
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
    ("text", "message"),
    [
        ("", "no feed"),
        ("feed = 3", "no feed"),
        ("feed = [3]", "must be a table"),
        ('[feed]\nvenue = "x"', "no feed"),
        ('[[feeds]]\nvenue = "x"', r"'feeds'.*did you mean feed"),
        ('[[feed]]\nvenu = "x"', "number 1 has an unknown key: 'venu'.*did you mean venue"),
        ('[[feed]]\nvenue = "x"\npresent = true', "'present'.*one of: path, required, venue"),
        ('[[feed]]\npath = "x"', "number 1 has no venue"),
        ('[[feed]]\nvenue = "a/b"', "number 1: not a valid venue.*for example 'ab'"),
        ("[[feed]]\nvenue = 3", "must be a str"),
        ('[[feed]]\nvenue = "x"\npath = 3', "path must be a non-empty string"),
        ('[[feed]]\nvenue = "x"\npath = ""', "path must be a non-empty string"),
        ('[[feed]]\nvenue = "x"\npath = "a\\u0000b"', "path must be a non-empty string"),
        ('[[feed]]\nvenue = "x"\nrequired = "yes"', "required must be true or false"),
        ('[[feed]]\nvenue = "x"\n[[feed]]\nvenue = "x"', "duplicate venue: venue='x'"),
        ("[[feed", "not TOML"),
        ("[[feed]]\nvenue = " + "9" * 10_000, "integer out of range: line=2, must fit in 64 bits"),
        ("[[feed]]\nvenue = 0x" + "f" * 10_000, r"integer out of range: option=feed\[0\].venue"),
        ("[[feed]]\nvenue" + ".a" * 5_000 + " = 1", r"nested too deep: option=feed\[0\].venue.a"),
    ],
)
def test_an_error_in_the_file_names_the_file(load, tmp, text, message):
    with pytest.raises(tw.InvalidOption, match=message) as caught:
        load(text)
    assert caught.value.path == str(tmp / "router.toml")


def test_a_file_that_does_not_exist_or_is_not_text(tmp, layout):
    with pytest.raises(FileNotFoundError):
        bus.load_feeds(tmp / "router.toml", layout)
    (tmp / "router.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(tw.InvalidOption, match="not TOML"):
        bus.load_feeds(tmp / "router.toml", layout)


def test_the_cost_of_a_feed_depends_neither_on_their_count_nor_on_the_depth_of_the_root(
    tmp, monkeypatch
):
    """Counts system calls on paths: they were most of the time for 20,000 feeds."""
    calls = 0

    def count(function):
        def counted(*args, **kwargs):
            nonlocal calls
            calls += 1
            return function(*args, **kwargs)

        return counted

    for name in ("stat", "lstat", "readlink"):
        monkeypatch.setattr(os, name, count(getattr(os, name)))

    def cost(feeds, depth):
        nonlocal calls
        text = "".join(f'[[feed]]\nvenue = "v{n}"\nrequired = false\n' for n in range(feeds))
        (tmp / "router.toml").write_text(text)
        root = tmp.joinpath(*["d"] * depth)
        (root / "streams" / "raw" / "v0" / "queue").mkdir(parents=True, exist_ok=True)
        calls = 0
        assert len(bus.load_feeds(tmp / "router.toml", bus.Layout(root))) == feeds
        return calls

    shallow, deep, many = cost(200, 1), cost(200, 40), cost(2000, 1)
    assert deep - shallow < 200  # a few calls for each level, once
    assert many - shallow <= 5 * (2000 - 200)


def test_a_feed_whose_directory_is_a_link_stays_below_the_root(load, layout, tmp):
    inside = layout.streams.raw("real")
    make(inside)
    (layout.root / "streams" / "raw" / "linked").symlink_to(inside.parent)
    (feed,) = load('[[feed]]\nvenue = "linked"')
    assert feed == bus.Feed("linked", layout.streams.raw("linked"), present=True)
    make(tmp / "outside" / "queue")
    (layout.root / "streams" / "raw" / "out").symlink_to(tmp / "outside")
    with pytest.raises(tw.InvalidOption, match="number 2: a link leads out of the root"):
        load('[[feed]]\nvenue = "real"\n[[feed]]\nvenue = "out"')
    (layout.root / "streams" / "raw" / "deep").mkdir()
    (layout.root / "streams" / "raw" / "deep" / "queue").symlink_to(tmp / "outside" / "queue")
    with pytest.raises(tw.InvalidOption, match="number 1: a link leads out of the root"):
        load('[[feed]]\nvenue = "deep"')


def test_a_link_above_all_feeds_that_leads_out_of_the_root_is_refused(load, layout, tmp):
    (tmp / "elsewhere").mkdir()
    (layout.root / "streams").mkdir(parents=True)
    (layout.root / "streams" / "raw").symlink_to(tmp / "elsewhere")
    with pytest.raises(tw.InvalidOption, match="number 1: a link leads out of the root"):
        load('[[feed]]\nvenue = "x"\nrequired = false')
    (feed,) = load('[[feed]]\nvenue = "x"\npath = "x"\nrequired = false')
    assert feed.path == tmp / "x"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(lambda t: f"[[feed]]\n{t}".encode())
)
def test_a_hostile_file_is_a_typed_error(tmp, layout, content):
    (tmp / "router.toml").write_bytes(content)
    with contextlib.suppress(tw.TapewireError):
        bus.load_feeds(tmp / "router.toml", layout)
