"""`tapewire verify`: a valid log passes; every kind of damage is found and located."""

import os
import tarfile
from pathlib import Path

import pytest

import tapewire as tw
from conftest import wait_until
from tests.support import crafted, faulty_bus
from tests.support import queue_format as qf
from tests.support.commands import tapewire

GOLDEN = Path(__file__).parents[2] / "golden" / "queue"


def verify(queue):
    ran = tapewire("verify", queue, "--json")
    (verdict,) = ran.json
    return ran.code, verdict


def fingerprint(directory):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_good_queue_passes_and_is_not_touched(tmp):
    queue = faulty_bus.good(tmp / "q")
    before = fingerprint(queue)
    code, verdict = verify(queue)
    assert (code, verdict["intact"], verdict["complete"]) == (0, True, True)
    assert (verdict["records"], verdict["payload_bytes"]) == (20, 20 * 900)
    assert (verdict["first_seq"], verdict["last_seq"]) == (0, 19)
    assert fingerprint(queue) == before
    ran = tapewire("verify", queue)
    assert ran.out == (
        "queue q: 20 records, 0 … 19, 17.6 KiB of payload: "
        "all checksums and sequence numbers are valid\n"
    )
    assert "/s" in ran.err


def test_a_live_queue_is_read_up_to_its_end_at_the_start(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append_batch(1, [b"x"] * 500)
        code, verdict = verify(tmp / "q")
        assert (code, verdict["records"]) == (0, 500)


def test_an_empty_queue_passes(tmp):
    tw.open_publisher(tmp / "q", segment_bytes=8192).close()
    assert verify(tmp / "q")[1]["records"] == 0
    assert "q: 0 records, 0 B of payload: all" in tapewire("verify", tmp / "q").out


@pytest.fixture
def six(tmp):
    """Two segments of three records; each takes 128 bytes."""
    return crafted.write(tmp, crafted.numbered(0, 3), crafted.numbered(3, 3))


def test_a_damaged_header_is_located_and_the_lost_records_are_named(six):
    crafted.damage(six, 0, 64 + 128)
    code, verdict = verify(six)
    assert (code, verdict["records"], verdict["damaged_places"]) == (3, 5, 1)
    (place,) = verdict["damage"]
    assert place["file"] == str(qf.segment_path(six, 0))
    assert (place["offset"], place["bytes"]) == (192, 128)
    assert (place["first_lost"], place["last_lost"]) == (1, 1)
    ran = tapewire("verify", six)
    assert "000000000.q at offset 192, 128 bytes: header_check does not match" in ran.out
    assert "lost: record 1" in ran.out
    assert "5 records, 0 … 5" in ran.out
    assert ran.out.endswith(": 1 damaged place\n")


def test_a_damaged_payload_is_found(six):
    crafted.damage(six, 1, 64 + 128, at=70)
    code, verdict = verify(six)
    assert (code, verdict["records"]) == (3, 5)
    assert "payload does not match its CRC-32" in verdict["damage"][0]["what"]
    assert (verdict["damage"][0]["first_lost"], verdict["damage"][0]["last_lost"]) == (4, 4)


def test_every_damaged_place_is_reported(six):
    for segment in (0, 1):
        crafted.damage(six, segment, 64 + 128, at=70)
    code, verdict = verify(six)
    assert (code, verdict["damaged_places"], verdict["records"]) == (3, 2, 4)


def test_a_gap_is_reported(tmp):
    queue = crafted.write(tmp, [*crafted.numbered(0, 3), *crafted.numbered(10, 3)])
    code, verdict = verify(queue)
    assert (code, verdict["gaps_found"], verdict["records"]) == (3, 1, 6)
    (gap,) = verdict["gaps"]
    assert (gap["first_lost"], gap["last_lost"]) == (3, 9)
    assert "gap: " in tapewire("verify", queue).out


def test_a_sparse_log_has_no_gaps(tmp):
    queue = crafted.write(tmp, [*crafted.numbered(0, 3), *crafted.numbered(10, 3)], sparse=True)
    assert verify(queue)[0] == 0


def test_a_missing_segment_is_reported_and_read_past(tmp):
    queue = crafted.write(tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)))
    qf.segment_path(queue, 1).unlink()
    code, verdict = verify(queue)
    assert (code, verdict["records"], verdict["complete"]) == (3, 6, True)


def test_segments_that_retention_removes_meanwhile_are_not_damage(tmp):
    from tapewire.queue.verification import Verification

    queue = crafted.write(tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)))
    with Verification(str(queue)) as check:
        for n in (0, 1):
            qf.segment_path(queue, n).unlink()
        for _ in check.run():
            pass
        verdict = check.verdict()
    assert (verdict.intact, verdict.retired) == (True, 1)
    assert (verdict.records, verdict.last_seq) == (6, 8)  # the first segment is still mapped


def test_an_overtaken_reader_is_not_damage_of_the_log(tmp):
    queue = crafted.write(tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)))
    faulty_bus.add_dead_reader(queue)
    qf.segment_path(queue, 0).unlink()
    assert verify(queue)[0] == 0


def test_a_damaged_segment_header_is_reported_and_read_past(tmp):
    queue = crafted.write(tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)))
    crafted.patch(queue, 1, 0, b"xxxx")
    code, verdict = verify(queue)
    assert (code, verdict["records"], verdict["complete"]) == (3, 6, True)
    assert "magic" in verdict["damage"][0]["what"]
    assert verdict["last_seq"] == 8


def test_damage_without_a_valid_record_after_it_ends_the_reading(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 3))
    crafted.damage(queue, 0, 64 + 256)
    code, verdict = verify(queue)
    assert (code, verdict["records"], verdict["complete"]) == (3, 2, False)
    assert "the rest of the log was not read" in tapewire("verify", queue).out


def test_a_lost_commit_word_at_the_end_is_found(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 3))
    crafted.patch(queue, 0, 64 + 256, bytes(4))
    assert verify(queue)[0] == 3


def test_a_damaged_seek_index_loses_no_record_and_exits_1(tmp):
    queue = faulty_bus.good(tmp / "q")
    index = qf.index_path(queue, 1)
    data = bytearray(index.read_bytes())
    data[100] ^= 1
    index.write_bytes(data)
    code, verdict = verify(queue)
    assert (code, verdict["intact"]) == (1, True)
    assert "seek index" in verdict["problems"][0]


@pytest.mark.parametrize(("name", "restarts"), [("basic", 0), ("dense", 0), ("restart", 2)])
def test_queues_of_chronicle_rs_pass_and_restarts_are_reported(tmp, name, restarts):
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(tmp, filter="data")
    code, verdict = verify(tmp / name)
    assert code == 0
    assert verdict["restarts_found"] == len(verdict["restarts"]) == restarts
    for restart in verdict["restarts"]:
        assert restart["to_seq"] == 0
    if restarts:
        assert "restart: sequence numbers start again after" in tapewire("verify", tmp / name).out


def test_more_damage_than_can_be_listed_is_counted(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.queue.verification._LISTED_MOST", 1)
    queue = crafted.write(tmp, [b"".join(crafted.numbered(n, 1)) for n in (0, 5, 10)])
    _, verdict = verify(queue)
    assert (verdict["gaps_found"], len(verdict["gaps"])) == (2, 1)
    assert "and 1 more gaps" in tapewire("verify", queue).out


def prepared(queue):
    """Add an empty segment after the end, as a killed writer may leave one."""
    ahead = max(at for at, _ in qf.stored_records(queue)) + 1
    with tw.open_publisher(queue, require_prealloc=True) as writer:
        wait_until(qf.segment_path(queue, ahead).exists)
        assert writer.metrics()["rolls"] == 0


@pytest.mark.parametrize("ahead", [False, True], ids=["", "with an empty segment ahead"])
@pytest.mark.parametrize("segment", [1, 3])
@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_another_kind_of_file_in_place_of_a_segment_is_damage_and_the_rest_is_read(
    queue, segment, kind, ahead
):
    if ahead:
        prepared(queue)
    records = len(qf.stored_records(queue))
    lost = len([at for at, _ in qf.stored_records(queue) if at == segment])
    path = qf.segment_path(queue, segment)
    path.unlink()
    {
        "directory": path.mkdir,
        "link": lambda: path.symlink_to("/etc/passwd"),
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    ran = tapewire("verify", queue, "--json")
    assert ran.code == 3, ran.err
    (seen,) = ran.json
    assert seen["damage"][0]["file"] == str(path)
    assert seen["records"] == records - lost
