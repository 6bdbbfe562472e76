"""A reader's name: one holder, a safe file name, pinned or not."""

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.processes import Child
from tests.support.records import stored

HOLDER = """
import sys
import tapewire as tw

with tw.open_subscriber(sys.argv[1], sys.argv[2]) as reader:
    print("ready", flush=True)
    sys.stdin.readline()
print("closed", flush=True)
"""


@pytest.fixture
def writer(publisher):
    writer = publisher()
    writer.append_batch(1, [b"a", b"b", b"c"])
    return writer


def test_a_name_is_held_once_in_a_process(writer, subscriber, queue):
    first = subscriber("r")
    with pytest.raises(tw.ReaderAlreadyActive, match="name='r'") as caught:
        tw.open_subscriber(queue, "r")
    assert caught.value.path == str(queue / "readers" / "r.meta")
    assert first.next().seq == 0
    first.close()
    assert subscriber("r").next().seq == 0


def test_a_name_is_held_once_by_all_processes(writer, queue):
    with Child(HOLDER, queue, "r") as child:
        child.expect("ready")
        with pytest.raises(tw.ReaderAlreadyActive, match="name='r'"):
            tw.open_subscriber(queue, "r")
        tw.open_subscriber(queue, "other").close()
        child.send()
        child.expect("closed")
        tw.open_subscriber(queue, "r").close()


def test_the_name_of_a_killed_process_is_free(writer, queue):
    with Child(HOLDER, queue, "r") as child:
        child.expect("ready")
        child.kill()
        tw.open_subscriber(queue, "r").close()


def test_a_refused_second_reader_does_not_move_the_first(writer, subscriber, queue):
    reader = subscriber("r")
    reader.next()
    reader.commit()
    before = queue_files.reader_slot(queue, "r")
    with pytest.raises(tw.ReaderAlreadyActive):
        tw.open_subscriber(queue, "r", start="latest", pinned=True)
    after = queue_files.reader_slot(queue, "r")
    same = ("segment_id", "offset", "flags")
    assert [before[name] for name in same] == [after[name] for name in same]


@pytest.mark.parametrize("name", ["a", "strategy_a", "A-1.b_c", "9", "-x", "_", "x" * 128])
def test_a_name_may_have_letters_digits_points_and_dashes(writer, subscriber, queue, name):
    assert subscriber(name).name == name
    assert (queue / "readers" / f"{name}.meta").exists()


NO_NAMES = ["../x", "", ".hidden", ".", "..", "a/b", "/etc/x", "x" * 129, "a b", "ä", "a\0b", "*"]
NO_NAMES += ["a\n", "a\\b", "\udcff"]


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
def test_any_other_name_is_refused_and_creates_no_file(writer, queue, tmp, name):
    with pytest.raises(ValueError, match=r"name|surrogates"):
        tw.open_subscriber(queue, name)
    assert list(tmp.rglob("x*")) == []
    assert not (queue / "readers").exists() or list((queue / "readers").iterdir()) == []


@pytest.mark.parametrize("name", [None, 5, b"r"], ids=repr)
def test_a_name_must_be_text(writer, queue, name):
    with pytest.raises(tw.InvalidName):
        tw.open_subscriber(queue, name)


def test_a_link_in_place_of_a_reader_s_file_is_not_followed(writer, queue, tmp):
    victim = tmp / "victim"
    victim.write_text("precious")
    (queue / "readers").mkdir()
    (queue / "readers" / "r.meta").symlink_to(victim)
    with pytest.raises((OSError, tw.TapewireError)):
        tw.open_subscriber(queue, "r").close()
    assert victim.read_text() == "precious"


def test_pinned_is_written_to_the_reader_s_file(writer, subscriber, queue):
    subscriber("plain")
    subscriber("pinned", pinned=True)
    assert queue_files.reader_slot(queue, "plain")["flags"] == 0
    assert queue_files.reader_slot(queue, "pinned")["flags"] == 0xFFFFFFFF


def test_pinned_holds_through_commits_and_heartbeats(writer, subscriber, queue, eventually):
    reader = subscriber("r", pinned=True)
    generation = queue_files.reader_slot(queue, "r")["generation"]
    reader.next()
    reader.commit()
    eventually(lambda: queue_files.reader_slot(queue, "r")["generation"] > generation + 1)
    assert queue_files.reader_slot(queue, "r")["flags"] == 0xFFFFFFFF


def test_pinned_is_that_of_the_last_opening(writer, subscriber, queue):
    with subscriber("r", pinned=True) as reader:
        reader.read_batch(2)
        reader.commit()
    with subscriber("r") as reader:
        assert queue_files.reader_slot(queue, "r")["flags"] == 0
        assert reader.next().seq == 2


def test_a_reader_sends_heartbeats_even_when_idle(writer, subscriber, queue, eventually):
    subscriber("r")
    before = queue_files.reader_slot(queue, "r")
    eventually(
        lambda: (
            queue_files.reader_slot(queue, "r")["last_heartbeat_ns"] != before["last_heartbeat_ns"]
        )
    )
    after = queue_files.reader_slot(queue, "r")
    assert (after["segment_id"], after["offset"]) == (before["segment_id"], before["offset"])
    assert after["generation"] > before["generation"]


def test_generations_count_up_in_turn(writer, subscriber, queue):
    reader = subscriber("r")
    for _ in range(5):
        before = queue_files.reader_slot(queue, "r")["generation"]
        reader.commit()
        assert queue_files.reader_slot(queue, "r")["generation"] > before


def test_a_name_does_not_change_what_is_read(writer, subscriber, queue):
    assert len(list(subscriber("a"))) == len(list(subscriber("b"))) == len(stored(queue)) == 3
