"""A full disk: raises `DiskFull`, leaves no partial record, and ends when there is space again."""

import pytest

from tests.crash.small_disk import FILESYSTEMS

MODES = {
    "prepared ahead": {},
    "made when needed": {"preallocate": False},
    "prepared ahead or not at all": {"require_prealloc": True},
    "synced at each roll": {"preallocate": False, "defer_seal_sync": False},
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.root) if name == "ext4" else name
        for name in FILESYSTEMS
    ]
)
def run(tmp, crew, request):
    """Run a child of tests/crash/faults.py on a file system of a few segments."""
    directory = tmp / "small"
    directory.mkdir()

    def go(actor, **arguments):
        where = {"filesystem": request.param, "directory": str(directory)}
        child = crew.start(f"faults.{actor}", where=where, **arguments)
        word, *rest = child.line.hear()
        if word == "unable":
            pytest.skip(f"cannot mount a small {request.param} (needs root): {rest[0]}")
        assert word == "ok", rest[0]
        assert child.wait() == 0

    return go


@pytest.mark.parametrize("mode", MODES)
def test_append_raises_and_the_same_writer_continues_when_there_is_space(run, mode):
    run("disk_full_and_free_again", options=MODES[mode])


def test_a_small_record_still_finds_room_in_the_segment(run):
    run("disk_full_takes_small_records_still")


@pytest.mark.parametrize("mode", MODES)
def test_an_interrupted_batch_reports_how_much_of_it_was_appended(run, mode):
    run("disk_full_in_a_batch", options=MODES[mode])


def test_a_refused_reservation_leaves_none_open(run):
    run("disk_full_in_a_reservation")


def test_a_queue_that_could_not_be_created_can_be_once_there_is_room(run):
    run("disk_full_at_creating")


def test_syncing_and_closing_need_no_more_room(run):
    run("disk_full_at_flushing")


def test_a_checkpoint_without_room_is_no_failed_sync(run):
    run("disk_full_at_sealing")


def test_registering_a_reader_needs_room_and_reading_does_not(run):
    run("disk_full_at_registering")


@pytest.mark.parametrize("mode", MODES)
def test_reopening_a_queue_on_a_full_disk_harms_nothing(run, mode):
    run("disk_full_at_reopening", options=MODES[mode])


@pytest.mark.parametrize("run", ["ext4"], indirect=True)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.root
def test_what_was_appended_is_there_when_the_disk_is_mounted_again(run, mode):
    run("disk_full_and_mounted_again", options=MODES[mode])
