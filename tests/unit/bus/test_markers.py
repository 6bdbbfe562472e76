"""READY and LEASE: their content, and malicious files."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire import bus
from tapewire.bus import markers

INT63 = st.integers(0, 2**63 - 1)
LEASES = st.builds(
    bus.Lease, INT63, INT63, INT63, INT63, st.text(max_size=64), st.text(max_size=64)
)
SAME_DIRECTORY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


def test_ready_is_an_empty_private_file(tmp):
    assert not bus.is_ready(tmp)
    bus.mark_ready(tmp)
    assert bus.is_ready(tmp)
    found = (tmp / "READY").stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (0, 0o600)
    assert os.listdir(tmp) == ["READY"]


def test_ready_again_changes_nothing(tmp):
    bus.mark_ready(tmp)
    before = (tmp / "READY").stat()
    bus.mark_ready(tmp)
    assert (tmp / "READY").stat() == before


def test_ready_can_be_removed_again(tmp):
    bus.mark_ready(tmp)
    bus.clear_ready(tmp)
    bus.clear_ready(tmp)
    assert not bus.is_ready(tmp)


def test_a_temporary_file_of_a_killed_process_is_replaced(tmp):
    (tmp / "READY.tmp").write_text("half")
    (tmp / "LEASE.tmp").symlink_to(tmp / "victim")
    bus.mark_ready(tmp)
    bus.write_lease(tmp)
    assert sorted(os.listdir(tmp)) == ["LEASE", "READY"]
    assert not (tmp / "victim").exists()


def test_a_directory_or_a_link_named_ready_is_not_ready(tmp):
    (tmp / "READY").mkdir()
    assert not bus.is_ready(tmp)
    (tmp / "READY").rmdir()
    (tmp / "READY").symlink_to("/etc/passwd")
    assert not bus.is_ready(tmp)


def test_nothing_is_ready_without_a_directory(tmp):
    assert not bus.is_ready(tmp / "nowhere")
    assert bus.read_lease(tmp / "nowhere") is None
    with pytest.raises(FileNotFoundError):
        bus.mark_ready(tmp / "nowhere")


def test_a_lease_is_one_private_json_line(tmp):
    lease = bus.write_lease(tmp, epoch=7)
    content = (tmp / "LEASE").read_bytes()
    assert content.index(b"\n") == len(content) - 1
    line = json.loads(content)
    assert (line["version"], line["pid"], line["epoch"]) == (1, os.getpid(), 7)
    assert line["timestamp_ns"] == lease.timestamp_ns
    assert stat.S_IMODE((tmp / "LEASE").stat().st_mode) == 0o600
    assert bus.read_lease(tmp) == lease


def test_a_lease_written_by_two_processes_is_always_complete(tmp):
    bus.write_lease(tmp)
    failures, over = [], threading.Event()

    def repeat(act):
        while not over.is_set():
            try:
                act(tmp)
            except Exception as error:
                failures.append(error)

    threads = [
        threading.Thread(target=repeat, args=(act,))
        for act in (bus.write_lease, bus.write_lease, bus.read_lease)
    ]
    for thread in threads:
        thread.start()
    over.wait(0.3)
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_lease_can_be_removed_again(tmp):
    bus.write_lease(tmp)
    for _ in range(2):
        bus.clear_lease(tmp)
        assert bus.read_lease(tmp) is None


def test_my_own_lease_is_alive(tmp):
    lease = bus.write_lease(tmp)
    assert lease.alive
    assert not lease.is_stale


def written_by_another(directory, then=""):
    code = f"import sys; from tapewire import bus; bus.write_lease(sys.argv[1]); {then}"
    return subprocess.Popen([sys.executable, "-c", code, directory], stdin=subprocess.PIPE)


@pytest.mark.parametrize("field", ["version", "pid", "start_time_ticks", "epoch", "timestamp_ns"])
@pytest.mark.parametrize("value", [None, True, -1, 1.0, "1", 2**63, [1]])
def test_an_invalid_number_is_refused(tmp, field, value):
    bus.write_lease(tmp)
    with pytest.raises(tw.CorruptMetadata, match=f"{field} must be"):
        changed(tmp, **{field: value})


def test_an_error_names_the_file_and_what_to_do(tmp):
    (tmp / "LEASE").write_text('{"version": 1, "pid": "me"}')
    with pytest.raises(tw.CorruptMetadata, match="pid='me'") as error:
        bus.read_lease(tmp)
    assert error.value.path == str(tmp / "LEASE")
    assert "remove it" in error.value.hint


def test_a_lease_is_stale_when_its_process_ended(tmp):
    written_by_another(tmp).communicate(timeout=30)
    assert bus.read_lease(tmp).is_stale


def test_a_killed_process_not_yet_waited_for_is_stale(tmp, eventually):
    process = written_by_another(tmp, "sys.stdin.read()")
    try:
        lease = eventually(lambda: bus.read_lease(tmp))
        assert lease.alive
    finally:
        process.kill()
    eventually(lambda: lease.is_stale)  # a zombie, whose exit code is not collected
    process.communicate()
    assert lease.is_stale


def changed(directory, **fields):
    line = json.loads((directory / "LEASE").read_text())
    (directory / "LEASE").write_text(json.dumps({**line, **fields}))
    return bus.read_lease(directory)


@pytest.mark.parametrize(
    "fields", [{"start_time_ticks": 1}, {"boot_id": "of another boot"}, {"host": "elsewhere"}]
)
def test_a_recycled_pid_another_boot_and_another_host_are_stale(tmp, fields):
    bus.write_lease(tmp)
    assert changed(tmp, **fields).is_stale


def test_a_lease_without_host_and_boot_is_judged_by_pid_and_start_time(tmp):
    bus.write_lease(tmp)
    assert changed(tmp, host="", boot_id="").alive


def test_a_lease_of_a_later_release_is_refused_by_version(tmp):
    bus.write_lease(tmp)
    with pytest.raises(tw.UnsupportedVersion, match="version=2"):
        changed(tmp, version=2)


def test_unknown_fields_are_ignored(tmp):
    lease = bus.write_lease(tmp)
    assert changed(tmp, colour="blue") == lease


@SAME_DIRECTORY
@given(lease=LEASES)
def test_any_lease_reads_back_as_it_was_written(tmp, lease):
    line = {"version": 1, **markers.asdict(lease)}
    (tmp / "LEASE").write_text(json.dumps(line))
    assert bus.read_lease(tmp) == lease


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = st.sampled_from(["version", "pid", "start_time_ticks", "epoch", "timestamp_ns", "host"])


@SAME_DIRECTORY
@given(
    content=st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(FIELDS, JSON).map(lambda value: json.dumps(value).encode())
)
@example(b"[" * 4000)
@example(b"1" * 4096)
@example(b" " * 5000)
@example(b'{"version": 1e400}')
@example(b'{"version": 1, "pid": -1}')
def test_a_hostile_lease_is_a_lease_or_a_typed_error(tmp, content):
    (tmp / "LEASE").write_bytes(content)
    with contextlib.suppress(tw.CorruptMetadata, tw.UnsupportedVersion):
        assert isinstance(bus.read_lease(tmp).alive, bool)


@pytest.mark.parametrize("make", ["mkdir", "mkfifo", "symlink"])
def test_a_lease_that_is_not_a_file_is_refused_without_blocking(tmp, make):
    lease = tmp / "LEASE"
    if make == "symlink":
        (tmp / "other").write_text("{}")
        lease.symlink_to("other")
    else:
        getattr(os, make)(lease)
    with pytest.raises(tw.CorruptMetadata):
        bus.read_lease(tmp)


def test_a_watch_detects_an_owner_that_stopped_renewing(tmp, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(markers.time, "monotonic", lambda: now[0])
    watch = bus.LeaseWatch(tmp, ttl=2.0)
    assert not watch.look(), "there is no lease"
    bus.write_lease(tmp)
    assert watch.look()
    now[0] += 2.0
    assert watch.look()
    now[0] += 0.1
    assert not watch.look(), "unchanged for longer than the ttl"
    bus.write_lease(tmp)
    assert watch.look(), "renewed"
    (tmp / "LEASE").unlink()
    assert not watch.look()


def test_a_jump_of_the_wall_clock_makes_no_lease_stale(tmp):
    watch = bus.LeaseWatch(tmp, ttl=60.0)
    bus.write_lease(tmp)
    changed(tmp, timestamp_ns=0)
    assert watch.look()


def test_an_invalid_epoch_is_refused(tmp):
    with pytest.raises(tw.InvalidOption):
        bus.write_lease(tmp, epoch=-1)
