"""WriterConfig.from_toml."""

import pytest

import tapewire as tw
from tapewire.config import WriterConfig


@pytest.fixture
def toml(tmp):
    def write(text):
        path = tmp / "writer.toml"
        path.write_text(text)
        return path

    return write


def test_every_option_can_be_set_in_toml(toml):
    path = toml("""
        [writer]
        segment_bytes = 1_048_576
        max_bytes = 10_485_760
        max_segments = 9
        when_full = { block = 1.5 }
        preallocate = true
        require_prealloc = true
        prealloc_wait = 0.002
        defer_seal_sync = false
        memlock = true
        checksum = false
        index_stride = 128
        retention = { reader_ttl = 5.0, max_reader_lag_bytes = 1024 }
        flush = { records = 10, seconds = 0.5 }
        first_seq = 1
        sparse = true
    """)
    assert WriterConfig.from_toml(path) == WriterConfig(
        segment_bytes=1 << 20,
        max_bytes=10 << 20,
        max_segments=9,
        when_full=tw.Block(1.5),
        require_prealloc=True,
        prealloc_wait=0.002,
        defer_seal_sync=False,
        memlock=True,
        checksum=False,
        index_stride=128,
        retention=tw.Retention(5.0, 1024),
        flush=tw.FlushEvery(10, 0.5),
        first_seq=1,
        sparse=True,
    )


def test_an_empty_table_is_the_defaults(toml):
    assert WriterConfig.from_toml(toml("[writer]")) == WriterConfig()


def test_the_section_can_be_chosen(toml):
    path = toml("[writer]\nchecksum = true\n[md]\nchecksum = false")
    assert WriterConfig.from_toml(str(path), "md").checksum is False


@pytest.mark.parametrize("preset", ["live", "archive"])
def test_a_preset_can_be_varied(toml, preset):
    path = toml(f'[writer]\npreset = "{preset}"\nsegment_bytes = 8192')
    expected = getattr(WriterConfig, preset)(segment_bytes=8192)
    assert WriterConfig.from_toml(path) == expected


def test_when_full_can_be_raise(toml):
    assert WriterConfig.from_toml(toml('[writer]\nwhen_full = "raise"')).when_full == tw.Raise()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[other]", "writer"),
        ('[writer]\npreset = "fast"', "preset='fast'"),
        ("[writer]\nsegment_size = 1", "segment_size"),
        ("[writer]\nsegment_bytes = 1", "segment_bytes=1"),
        ('[writer]\nsegment_bytes = "1M"', "segment_bytes='1M'"),
        ("[writer]\nretention = { ttl = 1 }", "ttl"),
        ("[writer]\nretention = 30", "retention|mapping"),
        ("[writer]\nflush = {}", "records or seconds"),
        ('[writer]\nwhen_full = "block"', "when_full='block'"),
        ("[writer]\nwhen_full = { block = -1 }", "timeout=-1"),
        ("writer = 3", "writer"),
    ],
)
def test_an_invalid_file_is_an_invalid_option_that_names_the_problem(toml, text, named):
    with pytest.raises(tw.InvalidOption, match=named):
        WriterConfig.from_toml(toml(text))


@pytest.mark.parametrize(
    "text", ["[writer]\nsegment_bytes = 1", "[writer]\nsegment_size = 1", "[other]"]
)
def test_an_invalid_option_names_the_file(toml, text):
    path = toml(text)
    with pytest.raises(tw.InvalidOption) as caught:
        WriterConfig.from_toml(path)
    assert caught.value.path == str(path)


def test_a_missing_file_is_not_found(tmp):
    with pytest.raises(FileNotFoundError):
        WriterConfig.from_toml(tmp / "none.toml")


def test_what_is_not_toml_is_refused(toml):
    with pytest.raises(tw.InvalidOption, match="not TOML"):
        WriterConfig.from_toml(toml("[writer"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[writer]\nsegment_bytes = " + "9" * 10_000, "line=2,"),
        ("[writer]\nsegment_bytes = -" + "9_9" * 5_000, "line=2,"),
        ('[writer]\nx = "' + "1" * 9_999 + '"\ny = ' + "9" * 9_999, "lines=2,3,"),
        ("[writer]\nsegment_bytes = 0x" + "f" * 10_000, "option=writer.segment_bytes,"),
        ("[writer]\nretention = { reader_ttl = 0b1" + "0" * 64 + " }", "writer.retention.reader"),
        ("[writer]\nx = [1, [2, 9223372036854775808]]", r"option=writer.x\[1\]\[1\],"),
    ],
    ids=["decimal", "underscores", "two candidates", "hexadecimal", "binary", "in a list"],
)
def test_an_integer_beyond_64_bits_is_an_invalid_option_that_names_the_place(toml, text, named):
    path = toml(text)
    with pytest.raises(tw.InvalidOption, match=f"integer out of range: .*{named}") as caught:
        WriterConfig.from_toml(path)
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 300


def test_the_largest_integer_of_64_bits_is_read(toml):
    path = toml(f"[writer]\nmax_bytes = {2**63 - 1}")
    assert WriterConfig.from_toml(path).max_bytes == 2**63 - 1


@pytest.mark.parametrize("text", ["[writer]\nx" + ".a" * 5_000 + " = 1", "x = " + "[" * 5_000])
def test_deep_nesting_is_an_invalid_option(toml, text):
    path = toml(text)
    with pytest.raises(tw.InvalidOption, match=r"nested too deep|not TOML") as caught:
        WriterConfig.from_toml(path)
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 300


def test_a_config_opens_a_queue(toml, tmp):
    config = WriterConfig.from_toml(toml("[writer]\nsegment_bytes = 8192\nchecksum = false"))
    with tw.open_publisher(tmp / "q", config) as writer:
        assert writer.segment_bytes == 8192
        assert writer.config == config
