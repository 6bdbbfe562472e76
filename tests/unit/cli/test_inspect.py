"""`tapewire inspect` and `tapewire readers`: what they show, refuse and remove."""

import json
import os
import subprocess
import sys

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.support import crafted, faulty_bus
from tests.support.commands import tapewire
from tests.support.processes import WRITER, Child

READER = """
import sys
import tapewire as tw

with tw.open_subscriber(sys.argv[1], sys.argv[2]) as reader:
    print("ready", flush=True)
    sys.stdin.readline()
"""


def rows(text):
    """The reader table, as lists of words."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("READER"))
    return [line.split() for line in lines[start + 1 :]]


def test_a_live_queue_is_shown_with_its_lags(tmp):
    with (
        tw.open_publisher(tmp / "q", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "q", "a") as reader,
        tw.open_subscriber(tmp / "q", "b", pinned=True),
    ):
        writer.append_batch(
            1, [bytes(900)] * 20, timestamps_ns=[1_700_000_000 * 10**9 + n for n in range(20)]
        )
        reader.read_batch(15)
        reader.commit()
        ran = tapewire("inspect", tmp / "q")
    assert ran.code == 0, ran.err
    assert f"alive, pid {os.getpid()}, epoch 1" in ran.out
    assert "records   20: 0 … 19" in ran.out
    assert "2023-11-14T22:13:20.000000019Z" in ran.out
    a, b = rows(ran.out)
    assert a[:6] == ["a", "alive", "15", "5", "5.0", "KiB"]
    assert b[:5] == ["b", "alive,", "pinned", "0", "20"]


def test_json_is_the_status_with_states(tmp):
    queue = faulty_bus.good(tmp / "q")
    tw.open_subscriber(queue, "r").close()
    (seen,) = tapewire("inspect", queue, "--json").json
    expected = json.loads(json.dumps(status(queue).to_dict()))
    assert (seen.pop("kind"), seen.pop("watched_seconds")) == ("queue", None)
    assert (seen.pop("gaps"), seen.pop("ledger_damage")) == ([], [])
    assert seen.pop("ledger_damage_count") == 0
    assert seen["writer"].pop("state") == "closed"
    assert seen["readers"][0].pop("state") == "stopped"
    for it in (seen, expected):
        for holder in (it["writer"], *it["readers"]):
            holder.pop("heartbeat_age")
    assert seen == expected


def test_a_killed_writer_is_reported_as_killed(tmp):
    queue = faulty_bus.good(tmp / "q")
    pid = faulty_bus.kill_writer(queue)
    assert f"killed, pid {pid}" in tapewire("inspect", queue).out


def test_watching_distinguishes_a_stopped_process_from_a_live_one(tmp):
    with (
        Child(WRITER, tmp / "q", 8192) as writer,
        tw.open_publisher(tmp / "p", segment_bytes=8192),
    ):
        writer.expect("ready")
        with Child(READER, tmp / "q", "stuck") as stuck, tw.open_subscriber(tmp / "q", "well"):
            stuck.expect("ready")
            writer.stop()
            stuck.stop()
            (seen,) = tapewire("inspect", tmp / "q", "--watch", "1.6", "--json").json
            (other,) = tapewire("inspect", tmp / "p", "--watch", "0.4", "--json").json
    assert seen["writer"]["state"] == "stale"
    assert {r["name"]: r["state"] for r in seen["readers"]} == {"stuck": "stale", "well": "alive"}
    assert seen["watched_seconds"] == 1.6
    assert other["writer"]["state"] == "alive"


def test_what_cannot_be_read_is_reported_and_exits_1(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 3), crafted.numbered(3, 3))
    crafted.patch(queue, 0, 0, b"xxxx")
    ran = tapewire("inspect", queue)
    assert ran.code == 1
    assert "problem   segment header is damaged: magic=" in ran.out


@pytest.mark.parametrize("command", [["inspect"], ["readers", "ls"], ["repair"], ["verify"]])
def test_a_missing_queue_exits_4_and_is_not_created(tmp, command):
    ran = tapewire(*command, tmp / "absent")
    assert (ran.code, ran.out) == (4, "")
    assert f"no such log: {tmp / 'absent'}" in ran.err
    (tmp / "empty").mkdir()
    assert tapewire(*command, tmp / "empty").code == 4
    assert list(tmp.iterdir()) == [tmp / "empty"]
    assert list((tmp / "empty").iterdir()) == []


def test_piped_output_has_no_colour_and_is_not_truncated(tmp):
    name = "a-very-long-name-" * 7
    queue = faulty_bus.good(tmp / "q")
    tw.open_subscriber(queue, name).close()
    ran = subprocess.run(
        [sys.executable, "-m", "tapewire.cli", "inspect", queue],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert "\x1b" not in ran.stdout
    assert any(line.startswith(name + "  ") for line in ran.stdout.splitlines())


# ---- readers


def test_readers_are_listed(tmp):
    queue = faulty_bus.good(tmp / "q")
    assert tapewire("readers", "ls", queue).out == "no named readers\n"
    faulty_bus.add_dead_reader(queue)
    assert rows(tapewire("readers", "ls", queue).out)[0][:4] == ["gone", "stopped", "0", "20"]
    (seen,) = tapewire("readers", "ls", queue, "--json").json
    assert (seen["queue"], seen["readers"][0]["lag_records"]) == (str(queue), 20)


def test_a_reader_is_removed_only_with_yes(tmp):
    queue = faulty_bus.good(tmp / "q")
    faulty_bus.add_dead_reader(queue)
    meta = queue / "readers" / "gone.meta"
    ran = tapewire("readers", "rm", queue, "gone")
    assert (ran.code, meta.exists()) == (1, True)
    assert f"would remove {meta}" in ran.out
    ran = tapewire("readers", "rm", queue, "gone", "--yes", "--json")
    assert (ran.code, ran.json[0]["removed"], meta.exists()) == (0, True, False)
    assert tapewire("readers", "rm", queue, "gone", "--yes").code == 4


def test_a_running_reader_is_not_removed(tmp):
    queue = faulty_bus.good(tmp / "q")
    with tw.open_subscriber(queue, "r"):
        ran = tapewire("readers", "rm", queue, "r", "--yes")
        assert ran.code == 2
        assert "is running" in ran.err
    assert (queue / "readers" / "r.meta").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", ""])
def test_a_name_without_a_reader_is_not_found(tmp, name):
    (tmp / "x.meta").touch()
    queue = faulty_bus.good(tmp / "q")
    assert tapewire("readers", "rm", queue, name, "--yes").code == 4
    assert (tmp / "x.meta").exists()
