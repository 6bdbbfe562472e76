"""Option types: each validates its values when it is created, with name and value in the error."""

import dataclasses
import math

import pytest

import tapewire as tw
from tapewire.config import WriterConfig

NOT_WHOLE = [1.5, "8192", True, b"1", [1]]


@pytest.mark.parametrize(
    ("option", "least"),
    [("segment_bytes", 128), ("max_bytes", 1), ("max_segments", 1), ("index_stride", 1)],
)
def test_an_integer_option_has_a_minimum(option, least):
    assert getattr(WriterConfig(**{option: least}), option) == least
    for wrong in (least - 1, -1, 2**63):
        with pytest.raises(tw.InvalidOption, match=f"{option}={wrong}"):
            WriterConfig(**{option: wrong})


@pytest.mark.parametrize(
    "option", ["segment_bytes", "max_bytes", "max_segments", "index_stride", "first_seq"]
)
@pytest.mark.parametrize("wrong", NOT_WHOLE, ids=repr)
def test_an_integer_option_must_be_an_int(option, wrong):
    with pytest.raises(tw.InvalidOption, match=f"{option} must be an int"):
        WriterConfig(**{option: wrong})


def test_first_seq_is_any_number_from_0():
    assert WriterConfig(first_seq=0).first_seq == 0
    assert WriterConfig(first_seq=2**63 - 1).first_seq == 2**63 - 1
    with pytest.raises(tw.InvalidOption, match="first_seq=-1"):
        WriterConfig(first_seq=-1)


def test_index_stride_fits_its_field_on_disk():
    assert WriterConfig(index_stride=2**32 - 1).index_stride == 2**32 - 1
    with pytest.raises(tw.InvalidOption, match="index_stride"):
        WriterConfig(index_stride=2**32)
    with pytest.raises(tw.InvalidOption, match="index_stride"):
        WriterConfig(index_stride=None)


@pytest.mark.parametrize("wrong", [-0.001, math.nan, "1", True, None], ids=repr)
def test_prealloc_wait_is_seconds_from_0(wrong):
    assert WriterConfig(prealloc_wait=0).prealloc_wait == 0
    with pytest.raises(tw.InvalidOption, match="prealloc_wait"):
        WriterConfig(prealloc_wait=wrong)


@pytest.mark.parametrize(
    "option", ["preallocate", "require_prealloc", "defer_seal_sync", "memlock", "checksum"]
)
@pytest.mark.parametrize("wrong", [1, 0, "yes", None], ids=repr)
def test_a_switch_is_a_bool(option, wrong):
    with pytest.raises(tw.InvalidOption, match=f"{option} must be bool"):
        WriterConfig(**{option: wrong})


def test_sparse_is_a_bool_or_omitted():
    assert [WriterConfig(sparse=s).sparse for s in (None, True, False)] == [None, True, False]
    with pytest.raises(tw.InvalidOption, match="sparse must be bool or None"):
        WriterConfig(sparse=1)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("when_full", "raise"), ("when_full", None), ("retention", 30.0), ("flush", 1000)],
)
def test_a_policy_is_a_value_of_its_class(option, wrong):
    with pytest.raises(tw.InvalidOption, match=f"{option} must be"):
        WriterConfig(**{option: wrong})


def test_require_prealloc_needs_preallocate():
    with pytest.raises(tw.InvalidOption, match="preallocate"):
        WriterConfig(require_prealloc=True, preallocate=False)


def test_an_invalid_option_is_a_value_error_and_a_tapewire_error():
    with pytest.raises(ValueError, match="segment_bytes"):
        WriterConfig(segment_bytes=1)
    with pytest.raises(tw.TapewireError, match="segment_bytes"):
        WriterConfig(segment_bytes=1)


def test_the_defaults_keep_data():
    config = WriterConfig()
    assert config.retention is None
    assert config.max_bytes is None
    assert config.max_segments is None
    assert config.when_full == tw.Raise()
    assert config.checksum


def test_the_defaults_are_the_documented_ones():
    assert dataclasses.asdict(WriterConfig()) == {
        "segment_bytes": None,
        "max_bytes": None,
        "max_segments": None,
        "when_full": {},
        "preallocate": True,
        "require_prealloc": False,
        "prealloc_wait": 0.001,
        "defer_seal_sync": True,
        "memlock": False,
        "checksum": True,
        "index_stride": 4096,
        "retention": None,
        "flush": None,
        "first_seq": None,
        "sparse": None,
    }


def test_live_preallocates_every_segment_and_locks_memory():
    assert tw.WriterConfig.live() == WriterConfig(require_prealloc=True, memlock=True)
    assert tw.WriterConfig.live(memlock=False) == WriterConfig(require_prealloc=True)


def test_archive_preallocates_nothing_and_syncs_soon():
    assert tw.WriterConfig.archive() == WriterConfig(
        preallocate=False,
        defer_seal_sync=False,
        flush=tw.FlushEvery(records=10_000, seconds=1.0),
    )
    assert tw.WriterConfig.archive(flush=None).flush is None


@pytest.mark.parametrize("preset", [WriterConfig.live, WriterConfig.archive])
def test_no_preset_turns_retention_on(preset):
    config = preset()
    assert (config.retention, config.max_bytes, config.max_segments) == (None, None, None)


def test_replace_returns_a_changed_copy():
    base = WriterConfig(segment_bytes=8192)
    assert base.replace(checksum=False) == WriterConfig(segment_bytes=8192, checksum=False)
    assert base.checksum


def test_replace_refuses_an_unknown_option_by_name():
    with pytest.raises(TypeError, match="segment_size"):
        WriterConfig().replace(segment_size=8192)
    with pytest.raises(tw.InvalidOption, match="segment_bytes=1"):
        WriterConfig().replace(segment_bytes=1)


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        WriterConfig().checksum = False


@pytest.mark.parametrize("wrong", [-1, math.nan, "1", True], ids=repr)
def test_block_waits_for_seconds_or_indefinitely(wrong):
    assert tw.Block().timeout is None
    assert tw.Block(0).timeout == 0
    with pytest.raises(tw.InvalidOption, match="timeout"):
        tw.Block(wrong)


def test_retention_has_its_documented_defaults_and_limits():
    assert tw.Retention() == tw.Retention(reader_ttl=30.0, max_reader_lag_bytes=10 << 30)
    for wrong in (-1, math.nan, "30"):
        with pytest.raises(tw.InvalidOption, match="reader_ttl"):
            tw.Retention(reader_ttl=wrong)
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(tw.InvalidOption, match="max_reader_lag_bytes"):
            tw.Retention(max_reader_lag_bytes=wrong)


@pytest.mark.parametrize("option", ["reader_ttl", "max_reader_lag_bytes"])
def test_retention_refuses_none(option):
    with pytest.raises(tw.InvalidOption, match=option):
        tw.Retention(**{option: None})


def test_flush_every_needs_records_or_seconds():
    assert tw.FlushEvery(records=1).seconds is None
    assert tw.FlushEvery(seconds=0.05).records is None
    with pytest.raises(tw.InvalidOption, match="records or seconds"):
        tw.FlushEvery()
    for wrong in (0, -1, 1.5, "10", True):
        with pytest.raises(tw.InvalidOption, match="records"):
            tw.FlushEvery(records=wrong)
    for wrong in (0, -1, math.nan, "1"):
        with pytest.raises(tw.InvalidOption, match="seconds"):
            tw.FlushEvery(seconds=wrong)


def test_wait_strategies_have_their_limits():
    assert tw.SpinThenPark().spin_us == 10
    with pytest.raises(tw.InvalidOption, match="spin_us"):
        tw.SpinThenPark(spin_us=-1)
    with pytest.raises(tw.InvalidOption, match="seconds"):
        tw.Sleep(-1)
    with pytest.raises(TypeError):
        tw.Sleep()
    with pytest.raises(tw.InvalidOption, match="seconds"):
        tw.Sleep(None)


def test_seq_is_an_unsigned_64_bit_number():
    assert tw.Seq(2**64 - 1).seq == 2**64 - 1
    for wrong in (-1, 2**64, 1.5, "1", None):
        with pytest.raises(tw.InvalidOption, match="seq"):
            tw.Seq(wrong)


def test_time_is_any_time_with_a_zone():
    assert tw.Time("1970-01-01T00:00:01Z") == tw.Time(1_000_000_000)
    with pytest.raises(ValueError, match="zone"):
        tw.Time("1970-01-01T00:00:01")
