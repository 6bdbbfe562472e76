"""Untrusted names and lease files: commands show them, and are not affected by them."""

import os

import pytest

from tests.support import faulty_bus
from tests.support.commands import tapewire


@pytest.mark.parametrize("name", ["\x1b[2Jmd", "[red]md", "two\nlines"])
@pytest.mark.parametrize("command", ["inspect", "doctor", "verify", "repair"])
def test_a_name_has_no_effect_on_the_terminal(tmp, command, name):
    queue = faulty_bus.good(tmp / "bus" / name)
    faulty_bus.add_temporary_file(queue)
    ran = tapewire(command, queue)
    assert ran.code == (1 if command in ("doctor", "repair") else 0), ran.err
    assert "\x1b" not in ran.out + ran.err
    assert "\nlines" not in ran.out + ran.err
    if name.startswith("[") and command != "repair":
        assert name in ran.out


@pytest.mark.parametrize("command", ["inspect", "doctor", "verify", "repair"])
def test_a_name_that_is_not_utf8_is_shown_and_survives_json(tmp, command):
    queue = faulty_bus.good(tmp / "bus" / os.fsdecode(b"m\xffd"))
    faulty_bus.add_temporary_file(queue)
    ran = tapewire(command, queue)
    assert ran.code == (1 if command in ("doctor", "repair") else 0), ran.err
    if command != "repair":
        assert "m\\udcffd" in ran.out
    (seen,) = tapewire(command, queue, "--json").json
    paths = [seen.get(key) for key in ("path", "bus", "log") if key in seen]
    assert [os.fsencode(path) for path in paths] == [os.fsencode(queue)]


def test_an_error_about_a_name_has_no_effect_on_the_terminal(tmp):
    ran = tapewire("inspect", tmp / "\x1b[2J")
    assert ran.code == 4
    assert "\x1b" not in ran.err


def test_the_command_to_copy_quotes_the_path(tmp):
    queue = faulty_bus.good(tmp / "a b;reboot")
    faulty_bus.add_dead_reader(queue, pinned=True)
    assert f"tapewire readers rm '{queue}' gone --yes" in tapewire("doctor", queue).out


@pytest.mark.parametrize(
    "lease",
    ['{"pid": NaN}', '{"pid": 1e999}', '{"a":' * 700 + "0" + "}" * 700, '{"a":["\\ud800"]}'],
)
def test_the_output_is_json_whatever_the_lease_contains(tmp, lease):
    queue = faulty_bus.good(tmp / "q")
    (queue / "LEASE").write_text(lease)
    ran = tapewire("inspect", queue, "--json")
    assert ran.code in (0, 1), ran.err
    (seen,) = ran.json
    assert "NaN" not in ran.out
    assert "Infinity" not in ran.out
    assert seen["lease"] is not None or "LEASE" in seen["problems"][0]
