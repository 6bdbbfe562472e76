"""The gap ledger: gaps are stored once and durably, and damage is reported."""

import errno
import json
import os
import subprocess
import sys
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire.book.gaps import FILE_NAME, Gap, GapLedger
from tapewire.errors import CorruptMetadata, InvalidOption

GAP = Gap("venue", "binance", "BTCUSDT", "book", 11, 14, seq=7, timestamp_ns=99, cause="chain")


def line_of(table: dict) -> bytes:
    body = json.dumps(table, separators=(",", ":")).encode()
    return b'{"crc":"%08x",' % zlib.crc32(body) + body[1:] + b"\n"


def test_added_gaps_are_read_by_another_ledger(tmp_path):
    other = replace(GAP, kind="record", first=20, last=20)
    GapLedger(tmp_path).add(GAP, other)
    assert GapLedger(tmp_path).read() == [GAP, other]


def test_a_directory_without_a_ledger_has_no_gaps_and_gets_no_file(tmp_path):
    assert GapLedger(tmp_path).read() == []
    assert GapLedger(tmp_path / "none").scan().damaged_count == 0
    assert GapLedger(tmp_path).add() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_same_gap_is_stored_once_by_all_processes(tmp_path):
    first, second = GapLedger(tmp_path), GapLedger(tmp_path)
    assert [first.add(GAP), second.add(GAP), first.add(GAP, GAP)] == [1, 0, 0]
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) == 1


def test_a_later_action_replaces_the_first_in_its_place(tmp_path):
    ledger = GapLedger(tmp_path)
    later = replace(GAP, seq=30)
    ledger.add(GAP, later)
    GapLedger(tmp_path).add(replace(GAP, action="resynced"))
    assert ledger.add(replace(GAP, action="resynced")) == 0
    assert [gap.action for gap in ledger.read()] == ["resynced", ""]


def test_the_file_is_private(tmp_path):
    GapLedger(tmp_path).add(GAP)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_every_line_is_json_with_the_documented_members(tmp_path):
    GapLedger(tmp_path).add(GAP)
    table = json.loads((tmp_path / FILE_NAME).read_text())
    assert list(table)[:2] == ["crc", "v"]
    assert (table["first"], table["last"], table["cause"]) == (11, 14, "chain")


@pytest.mark.parametrize("cut", [1, 40, 120])
def test_a_torn_last_line_is_reported_and_the_next_one_is_complete(tmp_path, cut):
    GapLedger(tmp_path).add(GAP, replace(GAP, seq=8))
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-cut])
    scan = GapLedger(tmp_path).scan()
    assert (scan.gaps, scan.damaged_count, scan.damaged[0].line) == ([GAP], 1, 2)
    third = replace(GAP, seq=9)
    ledger = GapLedger(tmp_path)
    ledger.add(third)
    scan = ledger.scan()
    # Without its newline the second line is still valid: the next writer added it.
    assert scan.gaps == ([GAP, replace(GAP, seq=8), third] if cut == 1 else [GAP, third])
    assert scan.damaged_count == (0 if cut == 1 else 1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", "checksum"),
        (b"hello\n", "checksum"),
        (b"x" * 20_000 + b"\n", "too long"),
        (line_of({"v": 1}), "members"),
        (line_of({"v": 2, "new": 1}), "later release"),
        (line_of({"v": "1"}), "no such version"),
        (line_of({"v": 1, **vars(GAP), "kind": "other"}), "kind"),
        (line_of({"v": 1, **vars(GAP), "first": 15}), "below first"),
        (line_of({"v": 1, **vars(GAP), "first": True}), "first"),
        (line_of({"v": 1, **vars(GAP), "venue": 3}), "venue"),
        (line_of({"v": 1, **vars(GAP), "last": 2**64}), "last"),
        (line_of({"v": 1, **vars(GAP)}).replace(b"BTC", b"ETH"), "does not match its checksum"),
    ],
)
def test_a_damaged_line_is_reported_and_the_others_are_read(tmp_path, line, why):
    ledger = GapLedger(tmp_path)
    ledger.add(GAP)
    with open(ledger.path, "ab") as file:
        file.write(line)
    later = replace(GAP, seq=8)
    ledger.add(later)
    scan = ledger.scan()
    assert scan.gaps == [GAP, later]
    assert [damaged.line for damaged in scan.damaged] == [2]
    assert why in scan.damaged[0].why


@settings(max_examples=40, deadline=None)
@given(damage=st.binary(max_size=400), at=st.integers(0, 400))
def test_any_bytes_give_findings_and_never_an_error(tmp_path_factory, damage, at):
    directory = tmp_path_factory.mktemp("ledger")
    ledger = GapLedger(directory)
    ledger.add(GAP, replace(GAP, seq=8))
    text = ledger.path.read_bytes()
    ledger.path.write_bytes(text[:at] + damage + text[at + len(damage) :])
    scan = ledger.scan()
    assert all(gap in (GAP, replace(GAP, seq=8)) for gap in scan.gaps)
    assert ledger.add(replace(GAP, seq=9)) == 1
    assert replace(GAP, seq=9) in ledger.read()


@pytest.mark.parametrize("place", ["link", "directory", "pipe"])
def test_a_ledger_that_is_not_a_file_is_refused(tmp_path, place):
    path = tmp_path / FILE_NAME
    if place == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif place == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(CorruptMetadata):
        GapLedger(tmp_path).add(GAP)
    with pytest.raises(CorruptMetadata):
        GapLedger(tmp_path).read()


def test_a_ledger_that_was_replaced_is_read_again(tmp_path):
    ledger = GapLedger(tmp_path)
    ledger.add(GAP)
    ledger.path.unlink()
    assert ledger.add(GAP) == 1


def test_a_full_disk_leaves_no_partial_line(tmp_path, monkeypatch):
    ledger = GapLedger(tmp_path)
    ledger.add(GAP)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, text: write(fd, text[:20]))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        ledger.add(replace(GAP, seq=8))
    monkeypatch.undo()
    assert ledger.scan().damaged_count == 0
    assert ledger.add(replace(GAP, seq=8)) == 1


def test_processes_that_add_at_once_lose_nothing(tmp_path):
    script = (
        "import sys; from tapewire.book.gaps import Gap, GapLedger\n"
        "ledger = GapLedger(sys.argv[1])\n"
        "for n in range(30): ledger.add(Gap('parse', 'v', 's', sys.argv[2], n, n, n, n))\n"
        "for n in range(30): ledger.add(Gap('parse', 'v', 's', 'shared', n, n, n, n))\n"
    )
    crowd = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "abc"
    ]
    assert [process.wait() for process in crowd] == [0, 0, 0]
    scan = GapLedger(tmp_path).scan()
    assert (len(scan.gaps), scan.damaged_count) == (120, 0)
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) == 120


@pytest.mark.parametrize("wrong", [{"kind": "x"}, {"last": 1}, {"venue": "v" * 300}, {"seq": -1}])
def test_a_gap_that_could_not_be_read_back_is_refused(wrong):
    with pytest.raises(InvalidOption):
        replace(GAP, **wrong)
