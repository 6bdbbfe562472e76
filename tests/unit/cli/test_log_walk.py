"""Reading past damage, with simulated readers."""

from types import SimpleNamespace

import pytest

import tapewire as tw
from tapewire.cli import log_walk
from tapewire.log import SkippedSpan

NOTHING = SkippedSpan(0, 64, 0, None, None)


class Scripted:
    """A reader whose `next` returns or raises what the script contains."""

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
def reported():
    return []


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch):
    monkeypatch.setattr(log_walk, "_DAMAGED_END_RETRY_SECONDS", 0)


def test_damage_at_the_end_is_reported_once_while_following(reported):
    damage = tw.CorruptRecord("damaged")
    reader = Scripted(damage, damage, damage, record(7))
    walk = log_walk.walk(reader, reported.append, follow=True)
    assert next(walk).seq == 7
    assert reported == ["damaged (no valid record follows)"]


def test_damage_at_the_end_ends_a_walk_that_does_not_follow(reported):
    reader = Scripted(record(1), tw.CorruptRecord("damaged"), record(2))
    assert [found.seq for found in log_walk.walk(reader, reported.append)] == [1]
    assert len(reported) == 1


def test_a_gap_is_reported_and_read_past(reported):
    reader = Scripted(record(1), tw.GapDetected("2 to 4 are missing", hint="call next"), record(5))
    assert [found.seq for found in log_walk.walk(reader, reported.append)] == [1, 5]
    assert reported == ["2 to 4 are missing"]


def test_skipped_records_are_reported_by_their_sequence_numbers(reported):
    span = SkippedSpan(3, 64, 384, 10, 12)
    reader = Scripted(tw.CorruptRecord("damaged"), record(13), skipped=span)
    assert [found.seq for found in log_walk.walk(reader, reported.append)] == [13]
    assert reported == ["damaged (skipped: 384 bytes of segment 3, records 10 to 12)"]


def test_other_errors_end_the_walk(reported):
    with pytest.raises(tw.MappingLost):
        list(log_walk.walk(Scripted(tw.MappingLost("cut short")), reported.append))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 4097])
@pytest.mark.parametrize("first_seq", [0, 1, 2**40])
def test_the_last_sequence_number_is_found_by_seeking(tmp, count, first_seq):
    with tw.open_publisher(tmp / "q", segment_bytes=65536, first_seq=first_seq) as writer:
        writer.append_batch(1, [b""] * count)
        with tw.open_log(tmp / "q") as reader:
            assert log_walk.last_seq(reader) == (first_seq + count - 1 if count else None)
