"""Publish, seal, wait and wake: every interleaving of a small queue, with explicit store buffers.

The model is native/tests/model/publish_wait_wake.pml; docs/internals/memory-ordering.md explains.
"""

import pytest

from tests.model.spin import search

SMALL = {"READERS": 1, "RECORDS": 2}

ASLEEP = "!(asleep_for_ever)"
NOT_NEXT = "next_record_whole"
CORRUPT = "!(corrupt_record)"

FAULTS = {
    "FLAG_LOAD_PASSES_COMMIT": ASLEEP,
    "BELL_HEARD_TOO_LATE": ASLEEP,
    "BELL_BEFORE_COMMIT": ASLEEP,
    "SEALED_IS_NO_PROGRESS": ASLEEP,
    "CLEAR_AFTER_BELL": ASLEEP,
    "NO_BELL_AT_OPENING": ASLEEP,
    "FLAG_TRUSTED_AT_OPENING": ASLEEP,
    "NO_SECOND_LOOK": NOT_NEXT,
    "FLAG_STORE_IN_BUFFER": ASLEEP,
    "COMMIT_BEFORE_BODY": NOT_NEXT,
    "SEAL_BEFORE_NEXT": "!(segment_missing)",
    "PAD_WRITTEN_AGAIN": CORRUPT,
    "OFFSET_BEFORE_COMMIT": CORRUPT,
    "END_BEFORE_COMMIT": CORRUPT,
    "END_WITHOUT_SECOND_LOOK": CORRUPT,
}
# Larger models, for faults that the small one does not show.
NEEDED = {
    "PAD_WRITTEN_AGAIN": {"DEATHS": 2},
    "OFFSET_BEFORE_COMMIT": {"HINTS": 1},
    "END_BEFORE_COMMIT": {"ENDS": 1},
    "END_WITHOUT_SECOND_LOOK": {"ENDS": 1},
}


@pytest.fixture
def verify(tmp, record_property):
    """Search the model and record its size among the test's properties."""

    def go(**options):
        result = search(tmp, **options)
        record_property("states", result.states)
        record_property("depth", result.depth)
        return result

    return go


def assert_right(result):
    assert result.violated is None, result.output
    assert result.unreached == []  # a statement that was never executed proves nothing


def test_one_reader_and_two_records_through_a_roll_and_a_kill(verify):
    assert_right(verify(**SMALL))


def test_a_recorded_end_never_makes_a_healthy_log_look_damaged(verify):
    assert_right(verify(ENDS=1, **SMALL))


def test_a_flag_load_that_passes_the_commit_is_found(verify):
    fault = "FLAG_LOAD_PASSES_COMMIT"
    assert verify(FAULT=fault, **SMALL).violated == FAULTS[fault]


def test_a_search_that_was_cut_short_is_no_proof(verify):
    with pytest.raises(AssertionError, match="the search is incomplete"):
        verify(depth=50, **SMALL)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_readers_and_three_records_through_rolls_and_a_kill(verify):
    assert_right(verify(large=True, timeout=1700, READERS=2, RECORDS=3))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_replacement_may_be_killed_too(verify):
    assert_right(verify(large=True, timeout=500, READERS=1, RECORDS=3, DEATHS=2))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_hints_never_make_a_healthy_log_look_damaged(verify):
    assert_right(verify(large=True, timeout=500, READERS=1, RECORDS=2, DEATHS=2, HINTS=1))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_recorded_ends_with_hints_and_a_second_kill(verify):
    assert_right(verify(large=True, timeout=500, DEATHS=2, HINTS=1, ENDS=1, **SMALL))


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_when_it_is_put_back(verify, fault):
    assert verify(FAULT=fault, **SMALL, **NEEDED.get(fault, {})).violated == FAULTS[fault]


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        {"FAULT": "EVERY_APPEND_RINGS"},
        {"FAULT": "NO_BELL_AT_SEAL"},
        {"FAULT": "END_KEPT_AT_OPENING", "ENDS": 1},
    ],
    ids=lambda change: change["FAULT"],
)
def test_a_change_that_should_do_no_harm_does_none(verify, change):
    assert_right(verify(READERS=1, RECORDS=3, **change))
