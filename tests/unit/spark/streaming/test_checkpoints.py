"""Saved states of replayed views: hints that are verified, or ignored."""

import os

import pytest

from tapewire.spark.streaming.checkpoints import KEPT, CheckpointMark, Checkpoints

UNIT = "binance:BTCUSDT"


def mark(n):
    return CheckpointMark(n * 1000, {"book": n, "trades": 2 * n})


@pytest.fixture
def states(tmp):
    return Checkpoints(tmp / "state", {"view": "book", "levels": 10})


def files(states):
    return sorted(path for path in states.directory.rglob("*") if path.is_file())


def test_a_state_is_found_at_its_position_and_after_it(states):
    states.save(UNIT, mark(3), b"three")
    assert states.find(UNIT, mark(3)) == (mark(3), b"three")
    assert states.find(UNIT, mark(5)).state == b"three"
    assert states.find(UNIT, mark(2)) is None
    assert states.find("binance:ETHUSDT", mark(3)) is None


def test_the_latest_state_that_is_not_ahead_in_any_log_is_used(states):
    for n in (1, 2, 3):
        states.save(UNIT, mark(n), b"%d" % n)
    assert states.find(UNIT, mark(2)).state == b"2"
    # State 3 has read more trades than this position has.
    assert states.find(UNIT, CheckpointMark(9000, {"book": 9, "trades": 5})).state == b"2"
    # The states have read a log that this position does not list.
    assert states.find(UNIT, CheckpointMark(9000, {"book": 9})) is None


def test_states_are_private(states):
    path = states.save(UNIT, mark(1), b"x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_created_directories_are_private(tmp):
    path = Checkpoints(tmp / "states" / "query", {}).save("u", CheckpointMark(1, {"q": 1}), b"x")
    made = [path.parent, tmp / "states" / "query", tmp / "states"]
    assert [oct(each.stat().st_mode & 0o777) for each in made] == ["0o700"] * 3


def test_a_state_of_other_options_is_ignored(states):
    states.save(UNIT, mark(1), b"ten levels")
    assert Checkpoints(states.directory, {"view": "book", "levels": 5}).find(UNIT, mark(1)) is None


@pytest.mark.parametrize("at", range(0, 320, 7))
def test_if_any_bit_of_a_state_is_flipped_the_older_one_is_used(states, at):
    states.save(UNIT, mark(1), b"older" * 10)
    path = states.save(UNIT, mark(2), b"newer" * 10)
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0x10
    path.write_bytes(content)
    found = states.find(UNIT, mark(2))
    assert found == (mark(1), b"older" * 10)


@pytest.mark.parametrize("length", [0, 5, 17, 60, 300])
def test_if_a_state_is_truncated_the_older_one_is_used(states, length):
    states.save(UNIT, mark(1), b"older" * 30)
    path = states.save(UNIT, mark(2), b"newer" * 30)
    os.truncate(path, length)
    assert states.find(UNIT, mark(2)).mark == mark(1)


def test_links_pipes_and_directories_instead_of_a_state_are_ignored(states, tmp):
    states.save(UNIT, mark(1), b"older")
    path = states.save(UNIT, mark(2), b"newer")
    os.rename(path, tmp / "elsewhere")
    path.symlink_to(tmp / "elsewhere")
    assert states.find(UNIT, mark(2)).state == b"older"
    path.unlink()
    os.mkfifo(path)
    assert states.find(UNIT, mark(2)).state == b"older"
    path.unlink()
    path.mkdir()
    assert states.find(UNIT, mark(2)).state == b"older"


def test_a_renamed_state_is_ignored(states):
    path = states.save(UNIT, mark(1), b"one")
    os.rename(path, path.parent / mark(2).file_name)
    assert states.find(UNIT, mark(2)) is None


def test_the_states_of_a_unit_with_any_name_are_in_the_directory(states):
    path = states.save("../../x:..", mark(1), b"x")
    assert path.parent.parent == states.directory
    assert states.find("../../x:..", mark(1)).state == b"x"


def test_pruning_keeps_two_states_at_or_before_the_committed_position(states):
    for n in range(1, 8):
        states.save(UNIT, mark(n), b"%d" % n)
    assert states.prune(UNIT, mark(5)).mark == mark(4)
    left = [int(path.name[:20]) // 1000 for path in files(states)]
    assert left == [4, 5, 6, 7]
    assert KEPT == 2


def test_pruning_does_not_count_a_damaged_state(states):
    for n in range(1, 6):
        path = states.save(UNIT, mark(n), b"%d" % n)
    os.truncate(path, 30)
    assert states.prune(UNIT, mark(5)).mark == mark(3)
    assert states.find(UNIT, mark(5)).mark == mark(4)


def test_with_fewer_than_two_states_nothing_may_be_released(states):
    assert states.prune(UNIT, mark(5)) is None
    states.save(UNIT, mark(1), b"1")
    assert states.prune(UNIT, mark(5)) is None
    assert states.find(UNIT, mark(5)).mark == mark(1)


def test_old_temporary_files_of_killed_tasks_are_deleted(states):
    for n in (1, 2, 3):
        path = states.save(UNIT, mark(n), b"%d" % n)
    old = path.parent / (mark(1).file_name + ".0123abcd.tmp")
    recent = path.parent / (mark(4).file_name + ".0123abcd.tmp")
    old.write_bytes(b"half")
    recent.write_bytes(b"half")
    states.prune(UNIT, mark(3))
    assert not old.exists()
    assert recent.exists()
