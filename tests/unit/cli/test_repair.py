"""`tapewire repair`: the dry run prints what --yes then does, and changes nothing."""

import os
import signal
import subprocess
import sys

import pytest

import tapewire as tw
from tests.support import crafted, faulty_bus
from tests.support import queue_format as qf
from tests.support.commands import tapewire


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def crashed(tmp):
    """A queue whose writer was killed in an append, with an earlier segment not sealed."""
    queue = crafted.write(
        tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)), sealed=[False, True, False]
    )
    crafted.patch(queue, 2, 64 + 3 * 128 + 8, b"half a record")
    (queue / "000000003.q.tmp").touch()
    return queue


def damaged(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 5))
    crafted.damage(queue, 0, 64 + 128)
    return queue


def killed(tmp):
    queue = faulty_bus.good(tmp / "q")
    faulty_bus.kill_writer(queue)
    return queue


def beyond(tmp):
    """A reader has committed past the end: a power failure lost the records that it had read."""
    queue = crafted.write(tmp, crafted.numbered(0, 3))
    (queue / "readers").mkdir()
    (queue / "readers" / "r.meta").write_bytes(qf.reader_meta(qf.reader_slot(0, 2048, 1)))
    return queue


@pytest.mark.parametrize("make", [crashed, damaged, killed, beyond])
def test_a_dry_run_prints_what_is_done_with_yes_and_changes_nothing(tmp, make):
    queue = make(tmp)
    before = contents(queue)
    dry = tapewire("repair", queue, "--json")
    assert dry.code == 1
    assert contents(queue) == before
    assert list(tmp.iterdir()) == [queue]  # the copy is gone
    real = tapewire("repair", queue, "--yes", "--json")
    assert real.code == 0
    planned, done = dry.json[0], real.json[0]
    assert planned["actions"]
    assert (planned.pop("rehearsed"), done.pop("rehearsed")) == (True, False)
    assert planned == done
    again = tapewire("repair", queue)
    assert (again.code, again.out.splitlines()[0]) == (0, "nothing to repair")


def test_every_action_is_printed(tmp):
    out = tapewire("repair", crashed(tmp), "--yes").out
    assert "removed the temporary file 000000003.q.tmp" in out
    assert "sealed segment 0" in out
    assert "unfinished bytes at offset 448" in out
    assert "the next record gets sequence number 9" in out


def test_damage_becomes_padding_and_a_copy_is_kept(tmp):
    queue = damaged(tmp)
    (done,) = tapewire("repair", queue, "--yes", "--json").json
    assert (done["damaged"], done["next_seq"]) == (1, 5)
    assert len(done["actions"]) == len(done["notes"]) == 1
    assert done["notes"][0].startswith("sequence numbers 1 to 1 are missing")
    assert (queue / "000000000.q.damaged").exists()
    assert tapewire("verify", queue, "--json").json[0]["gaps_found"] == 1


def test_a_dry_run_examines_every_segment(tmp, monkeypatch):
    queue = faulty_bus.good(tmp / "q", records=60)
    (queue / "000000099.q.tmp").touch()
    copied = []
    from tapewire.queue import repair

    real = repair._copy_file
    monkeypatch.setattr(
        repair, "_copy_file", lambda seen, name, *to: (copied.append(name), real(seen, name, *to))
    )
    (planned,) = tapewire("repair", queue, "--json").json
    assert planned["actions"] == ["removed the temporary file 000000099.q.tmp"]
    assert planned["next_seq"] == 60
    segments = [name for name in copied if name.endswith(".q")]
    assert len(segments) == len(qf.segment_ids(queue))


def test_a_dry_run_without_a_checkpoint_copies_everything(tmp):
    queue = faulty_bus.good(tmp / "q", records=60)
    (queue / "index.meta").unlink()
    qf.segment_path(queue, 2).unlink()
    (planned,) = tapewire("repair", queue, "--json").json
    (done,) = tapewire("repair", queue, "--yes", "--json").json
    assert planned["actions"] == done["actions"]
    assert "created segment 2" in done["actions"]


def test_the_control_file_of_another_queue_is_replaced(tmp):
    queue = faulty_bus.good(tmp / "q")
    other = faulty_bus.good(tmp / "other", records=3)
    (queue / "control.meta").write_bytes((other / "control.meta").read_bytes())
    assert tapewire("verify", queue).code == 3
    (done,) = tapewire("repair", queue, "--yes", "--json").json
    assert done["next_seq"] == 20
    assert done["actions"] == [
        "control.meta was damaged or missing and has been rebuilt from the segments"
    ]
    assert tapewire("verify", queue, "--json").json[0]["records"] == 20


@pytest.mark.parametrize("flags", [[], ["--yes"]])
def test_a_live_writer_is_left_alone(tmp, flags):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        ran = tapewire("repair", tmp / "q", *flags)
        assert ran.code == 2
        assert "the queue has a writer" in ran.err
        assert writer.append(1, b"a") == 0


@pytest.mark.parametrize("flags", [[], ["--yes"]])
def test_damage_of_control_file_and_all_segment_headers_exits_3(tmp, flags):
    queue = faulty_bus.good(tmp / "q")
    (queue / "control.meta").write_bytes(bytes(512))
    for segment in qf.segment_ids(queue):
        with open(qf.segment_path(queue, segment), "r+b") as file:
            file.write(b"no magic")
    ran = tapewire("repair", queue, *flags)
    assert ran.code == 3
    assert "control.meta is damaged and no segment has a valid header" in ran.err
    assert list(tmp.iterdir()) == [queue]


@pytest.mark.parametrize("damage", ["zeroed", "cut", "missing"])
def test_a_damaged_control_file_is_rebuilt_from_the_segments(tmp, damage):
    queue = faulty_bus.good(tmp / "q")
    control = queue / "control.meta"
    before = control.read_bytes()
    if damage == "missing":
        control.unlink()
    else:
        control.write_bytes(bytes(512 if damage == "zeroed" else 100))
    assert tapewire("repair", queue).code == 1
    assert tapewire("repair", queue, "--yes").code == 0
    fixed = ("magic", "version", "segment_size", "first_seq", "key", "check")
    old, new = (qf.unpack("ControlBlock", data) for data in (before, control.read_bytes()))
    assert [new[name] for name in fixed] == [old[name] for name in fixed]
    assert new["writer_epoch"] > old["writer_epoch"]
    assert tapewire("verify", queue, "--json").json[0]["records"] == 20
    assert tapewire("repair", queue).code == 0


@pytest.mark.parametrize("make", ["link", "pipe"])
def test_nothing_is_copied_through_links_and_pipes(tmp, make):
    queue = faulty_bus.good(tmp / "q")
    (queue / "stats.meta").unlink()
    if make == "link":
        (queue / "stats.meta").symlink_to("/etc/passwd")
    else:
        os.mkfifo(queue / "stats.meta")
    assert tapewire("repair", queue).code == 2
    assert list(tmp.iterdir()) == [queue]


def test_a_directory_in_place_of_a_file_is_reported_and_leaves_nothing_open(tmp):
    queue = faulty_bus.good(tmp / "q")
    (queue / "stats.meta").unlink()
    (queue / "stats.meta").mkdir()
    open_before = os.listdir("/proc/self/fd")
    ran = tapewire("repair", queue)
    assert (ran.code, str(queue / "stats.meta") in ran.err) == (2, True)
    assert os.listdir("/proc/self/fd") == open_before


def test_a_dry_run_does_not_fill_the_disk_of_live_queues(tmp, monkeypatch):
    queue = crashed(tmp)
    before = contents(tmp)
    real = os.statvfs

    def nearly_full(path):
        fields = list(real(path))
        fields[4] = 8192 // fields[1]  # f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    ran = tapewire("repair", queue)
    assert ran.code == 2
    assert "more than a third of the free space" in ran.err
    assert contents(tmp) == before
    assert [path.name for path in tmp.iterdir()] == [queue.name]


def test_a_dry_run_that_is_terminated_leaves_no_copy(tmp):
    queue = crashed(tmp)
    code = (
        "import os, signal, tapewire.queue.repair as r; from tapewire.cli.app import main\n"
        "r._copy_file = lambda *a: os.kill(os.getpid(), signal.SIGTERM)\n"
        "main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "repair", str(queue)], capture_output=True, check=False
    )
    assert ran.returncode == 128 + signal.SIGTERM, ran.stderr
    assert [path.name for path in tmp.iterdir()] == [queue.name]
