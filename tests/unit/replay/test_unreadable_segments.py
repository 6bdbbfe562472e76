"""Replay over a segment with a damaged header: an error, or a gap until the next snapshot."""

import pytest

import tapewire as tw
from tapewire.queue import status
from tapewire.replay import BookStream, Replay
from tests.support.crafted import break_header
from tests.support.feature_tapes import instrument, segmented_book

PLACES = pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])


@pytest.fixture
def log(tmp):
    return segmented_book(tmp, 300)


def damage(log, which):
    path = [part for part in status(log).segments if part.holds_records][which].path
    break_header(path)
    return path


def rows(log, **options):
    with BookStream(log, levels=3, sample="event", symbols=[instrument()], **options) as stream:
        return [row for batch in stream for row in batch.to_pylist()]


@PLACES
def test_without_the_option_it_is_an_error_that_names_the_file(log, which):
    path = damage(log, which)
    with pytest.raises(tw.CorruptMetadata, match="segment header is damaged") as error:
        rows(log)
    assert error.value.path == path


@PLACES
def test_with_it_trusted_rows_are_correct_and_others_are_untrusted(log, which):
    whole = {row["seq"]: row for row in rows(log)}
    assert all(row["trusted"] for row in whole.values())
    parts = [part for part in status(log).segments if part.holds_records]
    damage(log, which)
    found = rows(log, skip_damaged=True)
    trusted = [row for row in found if row["trusted"]]
    assert trusted == [whole[row["seq"]] for row in trusted]
    assert 0 < len(found) < len(whole)
    if which == 1:
        after = [row for row in found if row["seq"] >= parts[2].first_seq]
        assert not after[0]["trusted"]  # until the next snapshot in the log
        assert after[-1]["trusted"]


@PLACES
def test_it_is_one_gap_in_the_replay(log, which):
    parts = [part for part in status(log).segments if part.holds_records]
    ends = [*(part.first_seq for part in parts[1:]), None]
    damage(log, which)
    with Replay(log, skip_damaged=True) as replay:
        gaps = [step.gap for step in replay if step.kind == "gap"]
    first = parts[which].first_seq
    # The number of records in the last segment is unknown.
    last = first if which == -1 else ends[which] - 1
    assert gaps == [(first, last, "damaged")]
