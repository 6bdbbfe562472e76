"""Continuing after damage: what was skipped, as text and as sequence numbers."""

import pytest

import tapewire as tw
from tapewire.damage import DAMAGE, message_of, skip_damage
from tests.support import crafted


def first_damage(queue):
    """A reader that has reached damage, and its error."""
    reader = tw.open_log(queue)
    with pytest.raises(DAMAGE) as caught:
        list(reader)
    return reader, caught.value


def test_a_reader_is_past_a_gap_when_it_is_raised(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 5), crafted.numbered(8, 5))
    reader, error = first_damage(queue)
    passed = skip_damage(reader, error)
    assert (passed.first, passed.last) == (5, 7)
    assert reader.next().seq == 8


def test_a_damaged_record_is_skipped_and_named(tmp):
    records = crafted.numbered(0, 5)
    queue = crafted.write(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 2))
    reader, error = first_damage(queue)
    passed = skip_damage(reader, error)
    assert (passed.first, passed.last) == (2, 2)
    assert passed.what.endswith("(skipped: 128 bytes of segment 0, record 2)")
    assert reader.next().seq == 3


def test_without_a_valid_record_after_it_the_reader_stays(tmp):
    records = crafted.numbered(0, 5)
    queue = crafted.write(tmp, records)
    crafted.damage(queue, 0, crafted.offset_of(records, 4))
    reader, error = first_damage(queue)
    assert skip_damage(reader, error) is None
    with pytest.raises(type(error)):
        reader.next()


def test_said_omits_the_hint():
    assert message_of(tw.CorruptRecord("broken", path="q", hint="repair it")) == "broken [q]"
