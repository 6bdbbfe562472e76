"""After `fork`, the parent's queues stay the parent's; after `exec`, no handle remains."""

import os

import pytest

import tapewire as tw
from tests.crash.scripts import python
from tests.crash.tape import TYPE, payload_of


@pytest.fixture
def run(tmp, crew):
    def go(actor, **arguments):
        child = crew.start(f"forks.{actor}", queue=str(tmp / "queue"), **arguments)
        child.expect("ok", timeout=110)
        assert child.wait() == 0

    return go


def test_inherited_handles_raise_and_close_quietly_and_the_parent_continues(run):
    run("handles_in_the_child")


def test_an_inherited_reservation_cannot_be_committed_by_the_child(run):
    run("open_reservation_in_the_child")


def test_inherited_views_stay_readable(run):
    run("views_in_the_child")


def test_the_child_opens_queues_of_its_own_with_threads_of_its_own(run):
    run("own_handles_in_the_child")


def test_a_fork_in_the_middle_of_native_work_leaves_no_lock_behind(run):
    run("fork_while_threads_work", forks=40)


@pytest.mark.parametrize("module", ["tapewire.queue.rows", "tapewire.callback"])
def test_a_call_in_a_child_forked_in_the_middle_of_an_import_raises_and_does_not_hang(run, module):
    run("fork_in_an_import", module=module)


@pytest.mark.long
def test_many_forks_in_the_middle_of_native_work(run):
    run("fork_while_threads_work", forks=500)


def test_a_child_that_lives_on_keeps_neither_the_writers_lock_nor_a_readers_name(tmp, crew):
    queue = tmp / "queue"
    parent = crew.start("forks.grandchild_outlives", queue=str(queue))
    (grandchild,) = parent.expect("forked")
    parent.kill()
    os.kill(grandchild, 0)  # it lives
    with tw.open_publisher(queue) as writer, tw.open_subscriber(queue, "reader") as reader:
        assert writer.append(TYPE, payload_of(1)) == 1
        assert [record.seq for record in reader] == [0, 1]
    os.kill(grandchild, 0)


def test_a_forked_child_that_exits_normally_does_no_harm(tmp):
    # The complete shutdown of the interpreter, with the parent's handles still referenced.
    done = python(
        """
        import os, sys
        import tapewire as tw
        writer = tw.open_publisher(sys.argv[1], segment_bytes=8192)
        reader = tw.open_subscriber(sys.argv[1], "reader")
        writer.append(1, b"before")
        if os.fork() == 0:
            sys.exit(0)
        _, status = os.wait()
        assert status == 0, status
        for i in range(200):
            writer.append(1, bytes(100))
        assert len(list(reader)) == 201
        assert reader.writer_status().alive
        print("ok")
        """,
        tmp / "queue",
    )
    assert done.stdout == "ok\n"


def test_multiprocessing_by_fork_with_an_open_writer_in_the_parent(tmp):
    done = python(
        """
        import multiprocessing, sys
        import tapewire as tw

        def work(queue, name):
            with tw.open_subscriber(queue, name) as reader:
                return sum(len(record) for record in reader)

        with tw.open_publisher(sys.argv[1], segment_bytes=8192) as writer:
            for _ in range(300):
                writer.append(1, bytes(100))
            with multiprocessing.get_context("fork").Pool(2) as pool:
                sums = pool.starmap(work, [(sys.argv[1], f"r{i}") for i in range(8)])
            assert sums == [30_000] * 8, sums
            for _ in range(300):
                writer.append(1, bytes(100))
            assert writer.next_seq == 600
        print("ok")
        """,
        tmp / "queue",
    )
    assert done.stdout == "ok\n"


@pytest.mark.parametrize("close_fds", [True, False])
def test_a_program_started_by_exec_inherits_no_descriptor(tmp, close_fds):
    done = python(
        """
        import os, subprocess, sys
        import tapewire as tw
        with tw.open_publisher(sys.argv[1], segment_bytes=8192) as writer:
            with tw.open_subscriber(sys.argv[1], "reader"), tw.open_log(sys.argv[1]):
                writer.append_batch(1, [bytes(500)] * 100)
                shown = subprocess.run(
                    ["ls", "-l", "/proc/self/fd"], close_fds=sys.argv[2] == "True",
                    capture_output=True, text=True, check=True)
        print(shown.stdout)
        """,
        tmp / "queue",
        close_fds,
    )
    assert "pipe" in done.stdout
    assert str(tmp) not in done.stdout
