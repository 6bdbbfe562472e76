"""Reading past damage, by readers that are made up."""

from types import SimpleNamespace

import pytest

import tapewire as tw
from tapewire.cli import walking
from tapewire.log import SkippedSpan

NOTHING = SkippedSpan(0, 64, 0, None, None)


class Scripted:
    """A reader whose `next` gives what is scripted; what is an error is raised."""

    caps = frozenset()
    last_seq = None

    def __init__(self, *script, skipped=NOTHING):
        self.script = list(script)
        self.skipped = skipped

    def next(self):
        given = self.script.pop(0) if self.script else None
        if isinstance(given, Exception):
            raise given
        return given

    def skip_damaged(self):
        return self.skipped

    def wait(self, timeout):
        raise AssertionError("nothing to wait for")


def record(seq):
    return SimpleNamespace(seq=seq)


@pytest.fixture
def told():
    return []


@pytest.fixture(autouse=True)
def _no_time_to_lose(monkeypatch):
    monkeypatch.setattr(walking, "_MENDED_YET_SECONDS", 0)


def test_damage_with_nothing_behind_it_is_told_once_while_following(told):
    damage = tw.CorruptRecord("damaged")
    reader = Scripted(damage, damage, damage, record(7))
    walk = walking.walk(reader, told.append, follow=True)
    assert next(walk).seq == 7
    assert told == ["damaged (nothing right behind it)"]


def test_damage_with_nothing_behind_it_ends_a_walk_that_does_not_follow(told):
    reader = Scripted(record(1), tw.CorruptRecord("damaged"), record(2))
    assert [found.seq for found in walking.walk(reader, told.append)] == [1]
    assert len(told) == 1


def test_a_gap_is_told_and_read_over(told):
    reader = Scripted(record(1), tw.GapDetected("2 to 4 are missing", hint="call next"), record(5))
    assert [found.seq for found in walking.walk(reader, told.append)] == [1, 5]
    assert told == ["2 to 4 are missing"]


def test_what_was_skipped_is_told_by_its_numbers(told):
    span = SkippedSpan(3, 64, 384, 10, 12)
    reader = Scripted(tw.CorruptRecord("damaged"), record(13), skipped=span)
    assert [found.seq for found in walking.walk(reader, told.append)] == [13]
    assert told == ["damaged (skipped: 384 bytes of segment 3, records 10 to 12)"]


def test_other_errors_end_the_walk(told):
    with pytest.raises(tw.MappingLost):
        list(walking.walk(Scripted(tw.MappingLost("cut short")), told.append))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 4097])
@pytest.mark.parametrize("first_seq", [0, 1, 2**40])
def test_the_last_number_is_found_by_seeking(tmp, count, first_seq):
    with tw.open_publisher(tmp / "q", segment_bytes=65536, first_seq=first_seq) as writer:
        writer.append_batch(1, [b""] * count)
        with tw.open_log(tmp / "q") as reader:
            assert walking.last_seq(reader) == (first_seq + count - 1 if count else None)
