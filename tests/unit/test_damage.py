"""Going on behind damage: what was passed over, in words and in numbers."""

import pytest

import tapewire as tw
from tapewire.damage import DAMAGE, pass_damage, said
from tests.support import crafted


def first_damage(queue):
    """A reader that has met damage, and the error."""
    reader = tw.open_log(queue)
    with pytest.raises(DAMAGE) as caught:
        list(reader)
    return reader, caught.value


def test_a_gap_has_been_passed_when_it_is_told(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 5), crafted.numbered(8, 5))
    reader, error = first_damage(queue)
    passed = pass_damage(reader, error)
    assert (passed.first, passed.last) == (5, 7)
    assert reader.next().seq == 8


def test_a_damaged_record_is_skipped_and_named(tmp):
    records = crafted.numbered(0, 5)
    queue = crafted.write(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 2))
    reader, error = first_damage(queue)
    passed = pass_damage(reader, error)
    assert (passed.first, passed.last) == (2, 2)
    assert passed.what.endswith("(skipped: 128 bytes of segment 0, record 2)")
    assert reader.next().seq == 3


def test_where_nothing_right_comes_behind_the_reader_stays(tmp):
    records = crafted.numbered(0, 5)
    queue = crafted.write(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 4))
    reader, error = first_damage(queue)
    assert pass_damage(reader, error) is None
    with pytest.raises(type(error)):
        reader.next()


def test_what_is_said_leaves_out_the_hint():
    assert said(tw.CorruptRecord("broken", path="q", hint="mend it")) == "broken [q]"
