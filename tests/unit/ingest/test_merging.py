"""Lanes of events are merged in order, with a bounded number in memory."""

import numpy as np
import pytest

from tapewire.errors import CorruptSource
from tapewire.ingest.merging import merged

DTYPE = np.dtype([("key", "<i8"), ("lane", "<i8")])


def rows(keys, lane=0):
    made = np.zeros(len(keys), DTYPE)
    made["key"], made["lane"] = keys, lane
    return made


class File:
    """Pieces of lanes; `at` is how many have been read in the second pass."""

    def __init__(self, *pieces, damaged=False):
        self._pieces = pieces
        self._damaged = damaged
        self.at = 0

    def __call__(self, report):
        for i, lanes in enumerate(self._pieces):
            self.at = i + 1 if report else 0
            yield [rows(keys, k) for k, keys in enumerate(lanes)]
        if self._damaged:
            raise CorruptSource("cut short")


def keys_of(*files):
    return [key for events in merged(files, "a report") for key in events["key"].tolist()]


def test_lanes_are_merged_by_key():
    first = File([[1, 4], [2]], [[6], [3, 9]])
    second = File([[5]], [[7, 8]])
    assert keys_of(first, second) == list(range(1, 10))


@pytest.mark.parametrize("empty", [[], [[]]])
def test_a_file_without_events_holds_up_nothing(empty):
    pieces = [[[i]] for i in range(100)]
    file = File(*pieces)
    at = [file.at for _ in merged([File(*[[e] for e in empty]), file], "a report")]
    assert at == list(range(1, 101)), "each is given when it has been read"


def test_a_lane_that_has_ended_holds_up_nothing():
    """A log of orders only, or with trades only in the morning, is not collected in memory."""
    file = File(*[[[i], [i] if i < 3 else []] for i in range(100)])
    at = [file.at for _ in merged([file], "a report")]
    assert at == list(range(1, 101))


def test_files_that_end_together_come_to_their_end():
    assert keys_of(File([[1]], [[]]), File([[1]], [[]])) == [1, 1]


def test_events_out_of_order_are_sorted_and_equal_keys_keep_their_order():
    file = File([[3, 1], [2]], [[2], [1]])
    got = [tuple(row) for events in merged([file], "a report") for row in events.tolist()]
    assert got == [(1, 0), (1, 1), (2, 1), (2, 0), (3, 0)]


@pytest.mark.parametrize("pieces", [([[1, 2]], [[3]]), ([[2, 1]], [[3]])])
def test_damage_is_raised_after_the_events_before_it(pieces):
    given = []

    def read():
        for events in merged([File(*pieces, damaged=True)], "a report"):
            given.extend(events["key"].tolist())

    with pytest.raises(CorruptSource):
        read()
    assert given == [1, 2, 3]
