"""Files truncated or unlinked under open handles: a typed error, and the process lives."""

import signal

import pytest

from tests.crash.scripts import python


@pytest.fixture
def run(tmp, crew):
    def go(actor, **arguments):
        child = crew.start(f"faults.{actor}", queue=str(tmp / "queue"), **arguments)
        child.expect("ok")
        assert child.wait() == 0

    return go


@pytest.mark.parametrize("size", [0, 4096, 8192])
def test_a_segment_cut_under_the_writer_is_a_lost_mapping(run, size):
    run("cut_under_the_writer", size=size)


def test_a_segment_cut_under_a_reservation_refuses_its_commit(run):
    run("cut_under_a_reservation")


def test_a_segment_cut_under_a_batch_is_a_lost_mapping(run):
    run("cut_under_a_batch")


@pytest.mark.parametrize(
    "how", ["next", "iteration", "batch", "wait", "seek_seq", "seek_time", "seek_start", "seek_end"]
)
def test_a_segment_cut_under_a_reader_is_a_lost_mapping_and_views_show_zeros(run, how):
    run("cut_under_a_reader", how=how)


def test_a_segment_cut_under_a_parked_reader_ends_its_wait(run):
    run("cut_under_a_parked_reader")


def test_a_segment_made_ahead_and_cut_is_a_lost_mapping(run):
    run("cut_prepared")


def test_control_cut_under_writer_and_reader_is_a_lost_mapping(run):
    run("cut_control")


def test_a_readers_file_cut_under_it_refuses_commits_alone(run):
    run("cut_reader_meta")


def test_statistics_cut_under_the_writer_do_no_harm(run):
    run("cut_stats")


@pytest.mark.parametrize("preallocate", [True, False])
def test_a_directory_unlinked_under_its_handles_is_a_typed_error_when_it_matters(run, preallocate):
    run("directory_unlinked", preallocate=preallocate)


OPEN_A_QUEUE = """
    import contextlib, time, faulthandler, mmap, os, signal, sys
    import tapewire as tw

    def touch_a_foreign_mapping_of_a_truncated_file():
        path = os.path.join(sys.argv[1], "foreign")
        with open(path, "w+b") as file:
            file.truncate(4096)
            view = mmap.mmap(file.fileno(), 4096)
            file.truncate(0)
        return view[0]

    def open_queue():
        writer = tw.open_publisher(os.path.join(sys.argv[1], "queue"), segment_bytes=8192)
        writer.append(1, b"x")
        return writer
"""


def test_a_bus_error_elsewhere_still_ends_the_process(tmp):
    code = OPEN_A_QUEUE + "    w = open_queue(); touch_a_foreign_mapping_of_a_truncated_file()"
    assert python(code, tmp, check=False).returncode == -signal.SIGBUS


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_bus_error_elsewhere_goes_to_faulthandler(tmp, order):
    enable = "    faulthandler.enable()\n"
    first, then = (enable, "") if order == "before" else ("", enable)
    code = OPEN_A_QUEUE + first + "    w = open_queue()\n" + then
    done = python(code + "    touch_a_foreign_mapping_of_a_truncated_file()", tmp, check=False)
    assert "Bus error" in done.stderr
    assert "touch_a_foreign_mapping_of_a_truncated_file" in done.stderr
    assert done.returncode == -signal.SIGBUS


def test_a_bus_error_sent_by_kill_ends_the_process(tmp):
    code = (
        OPEN_A_QUEUE + "    w = open_queue(); os.kill(os.getpid(), signal.SIGBUS); print('alive')"
    )
    done = python(code, tmp, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")


def test_a_bus_error_sent_by_kill_reaches_the_users_own_handler(tmp):
    code = (
        OPEN_A_QUEUE
        + """
    heard = []
    signal.signal(signal.SIGBUS, lambda *_: heard.append(1))
    w = open_queue()
    os.kill(os.getpid(), signal.SIGBUS)
    while not heard:  # any thread of the process may be the one that gets it
        time.sleep(0.001)
    assert heard == [1]
    os.truncate(os.path.join(sys.argv[1], "queue", "000000000.q"), 0)
    try:
        w.append(1, b"y")
    except tw.MappingLost:
        print("still guarded")
    # Before the interpreter puts the default action back under a handler of its own, at its end.
    with contextlib.suppress(tw.TapewireError):
        w.close()
"""
    )
    assert python(code, tmp).stdout.strip() == "still guarded"


def test_an_ignored_bus_error_leaves_the_guard_in_place(tmp):
    code = (
        OPEN_A_QUEUE
        + """
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    w = open_queue()
    os.kill(os.getpid(), signal.SIGBUS)
    os.truncate(os.path.join(sys.argv[1], "queue", "000000000.q"), 0)
    try:
        w.append(1, b"y")
    except tw.MappingLost:
        print("still guarded")
    # Before the interpreter puts the default action back under a handler of its own, at its end.
    with contextlib.suppress(tw.TapewireError):
        w.close()
"""
    )
    assert python(code, tmp).stdout.strip() == "still guarded"
