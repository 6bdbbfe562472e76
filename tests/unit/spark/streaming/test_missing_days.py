"""Streaming books and features of an archive in which days are missing."""

import shutil
from itertools import pairwise

import pyarrow as pa
import pytest

from tests.support.feature_tapes import random_tape
from tests.support.micro_batches import MicroBatches, batch
from tests.support.replayed_streams import ONE, VIEWS, options_of, same, write_days


def in_days(seed, days, each=60):
    """Events in equal parts, by day."""
    tape = sorted(random_tape(seed, each * days), key=lambda event: event.time)
    return {day + 1: tape[each * day : each * day + each] for day in range(days)}


@pytest.mark.parametrize(("view", "sample"), VIEWS)
def test_the_day_after_a_missing_one_starts_a_new_timeline_as_in_a_batch(tmp, view, sample):
    root, days = tmp / "archive", in_days(4, 5)
    asked = options_of(view, sample, root)
    query = MicroBatches(root, state=tmp / "state", **asked)
    for some in ((1, 2), (4,), (5,)):
        write_days(root, {day: days[day] for day in some})
        query.run()
    same(query.rows, batch(root, partitions=1, **asked))
    in_pieces = MicroBatches(root, state=tmp / "another", max_rows=45, **asked).run()
    assert len(in_pieces.batches) > len(days)
    same(in_pieces.rows, query.rows)


@pytest.mark.parametrize(("view", "sample"), [("book", "event"), ("features", "100ms")])
def test_a_missing_day_that_appears_later_continues_the_day_before_it(tmp, view, sample):
    root, days = tmp / "archive", in_days(5, 4)
    asked = options_of(view, sample, root)
    query = MicroBatches(root, state=tmp / "state", max_rows=20, **asked)

    def one_pass(some):
        path = root / "v1" / ONE.venue / ONE.symbol / f"2026-01-0{some}"
        return batch(path, partitions=1, **asked)

    write_days(root, {1: days[1], 3: days[3]})
    ends = [0, one_pass("1").num_rows, query.run().rows.num_rows]
    before = len(query.batches)
    for day in (2, 4):
        write_days(root, {day: days[day]})
        ends.append(query.run().rows.num_rows)
        assert len(query.batches) > before + 1, "late records would be in one micro-batch"
        before = len(query.batches)
    first, third, second, fourth = (query.rows[low:high] for low, high in pairwise(ends))
    parts = [one_pass("[12]"), one_pass("[34]")]
    same(pa.concat_tables([first, second, third, fourth]), pa.concat_tables(parts))


def test_a_day_that_is_removed_after_it_was_read_is_not_returned_again(tmp):
    root, days = tmp / "archive", in_days(6, 4)
    asked = options_of("book", "event", root)
    query = MicroBatches(root, state=tmp / "state", **asked)
    write_days(root, {day: days[day] for day in (1, 2, 3)})
    before = query.run().rows.num_rows
    shutil.rmtree(next(root.rglob("2026-01-01")))
    assert query.run().rows.num_rows == before
    write_days(root, {4: days[4]})
    assert query.run().rows.num_rows == before + len(days[4])
