"""`tapewire doctor`: one line for each fault, and none is left after --fix --yes."""

import pytest

import tapewire as tw
from tapewire import bus as bus_of
from tapewire.queue import status
from tapewire.queue.checkup import apply_remedy, examine
from tests.support import crafted, faulty_bus
from tests.support import queue_format as qf
from tests.support.commands import tapewire

FAULTS = {
    "dead-reader": faulty_bus.add_dead_reader,
    "stale-lock": faulty_bus.kill_writer,
    "temporary-file": faulty_bus.add_temporary_file,
    "unsealed-segment": faulty_bus.unseal,
}


@pytest.fixture
def bus(tmp):
    """A bus with one queue for each fault that can be fixed, and one queue without a fault."""
    root = tmp / "bus"
    for kind, spoil in FAULTS.items():
        spoil(faulty_bus.good(root / "streams" / kind / "queue"))
    faulty_bus.good(root / "streams" / "well" / "queue")
    return root


def doctor(bus, *options):
    ran = tapewire("doctor", bus, "--json", *options)
    (seen,) = ran.json
    return ran.code, seen


def kinds(seen):
    return sorted(finding["kind"] for finding in seen["findings"])


def verified(bus):
    """The output of verify for every queue, without the duration."""
    lines = []
    for queue in sorted(bus.glob("streams/*/queue")):
        ran = tapewire("verify", queue)
        lines.append((queue, ran.code, ran.out))
    return lines


def test_each_fault_is_one_line_and_all_are_fixed(bus):
    before = verified(bus)
    assert [code for _, code, _ in before] == [0] * 5
    ran = tapewire("doctor", bus)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert len(lines) == 5
    for kind in FAULTS:
        (line,) = [line for line in lines if f": {kind}: " in line]
        assert line.startswith(f"streams/{kind}/queue: ")
    assert lines[-1] == "5 queues: 4 findings"
    ran = tapewire("doctor", bus, "--fix", "--yes")
    assert ran.code == 0, ran.out
    assert ran.out.splitlines()[-1] == "5 queues: no findings"
    ran = tapewire("doctor", bus)
    assert (ran.code, ran.out) == (0, "5 queues: no findings\n")
    assert verified(bus) == before


def test_fix_alone_prints_what_it_would_do_and_does_nothing(bus):
    files = {p: p.read_bytes() for p in bus.rglob("*") if p.is_file()}
    ran = tapewire("doctor", bus, "--fix")
    assert ran.code == 1
    assert "streams/dead-reader/queue: would forget reader 'gone' and its position" in ran.out
    assert "would clear the killed writer's name" in ran.out
    assert "would remove the temporary files" in ran.out
    assert "would open the writer, which seals old segments" in ran.out
    assert {p: p.read_bytes() for p in bus.rglob("*") if p.is_file()} == files


def test_yes_without_fix_is_a_usage_error(bus):
    assert tapewire("doctor", bus, "--yes").code == 2


def test_json_names_findings_and_fixes(bus):
    code, seen = doctor(bus)
    assert (code, kinds(seen), seen["queues"], seen["left"]) == (1, sorted(FAULTS), 5, 4)
    assert all(finding["fixable"] and finding["remedy"] for finding in seen["findings"])
    code, seen = doctor(bus, "--fix", "--yes")
    assert (code, seen["left"]) == (0, 0)
    assert sorted(fix["kind"] for fix in seen["fixes"]) == sorted(FAULTS)
    assert all(fix["done"] for fix in seen["fixes"])


def test_all_faults_in_one_queue_are_fixed_together(tmp):
    queue = faulty_bus.good(tmp / "q")
    for kind, spoil in FAULTS.items():
        if kind != "unsealed-segment":  # a writer that opens the queue seals it
            spoil(queue)
    faulty_bus.unseal(queue)
    assert kinds(doctor(queue)[1]) == sorted(FAULTS)
    assert doctor(queue, "--fix", "--yes")[0] == 0
    assert tapewire("doctor", tmp).out == "1 queue: no findings\n"


def test_what_live_processes_use_is_not_a_finding_and_not_touched(tmp):
    with (
        tw.open_publisher(tmp / "q", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "q", "r"),
    ):
        writer.append_batch(1, [bytes(900)] * 20)
        (tmp / "q" / "000000099.q.tmp").touch()  # as a worker prepares it
        (tmp / "q" / "READY").touch()
        code, seen = doctor(tmp, "--fix", "--yes")
        assert (code, seen["findings"]) == (0, [])
        assert (tmp / "q" / "000000099.q.tmp").exists()


def test_a_reader_that_stopped_just_now_may_be_spared(tmp):
    queue = faulty_bus.good(tmp / "q")
    tw.open_subscriber(queue, "r", start="latest").close()
    assert doctor(tmp, "--reader-ttl", "30")[0] == 0
    assert "dead-reader" in kinds(doctor(tmp)[1]), "by default its lock alone decides"


def test_a_dead_pinned_reader_is_reported_and_never_removed(tmp):
    queue = faulty_bus.good(tmp / "q")
    faulty_bus.add_dead_reader(queue, pinned=True)
    code, seen = doctor(tmp, "--fix", "--yes")
    assert (code, kinds(seen), seen["left"]) == (1, ["dead-pinned-reader"], 1)
    assert (queue / "readers" / "gone.meta").exists()


def test_a_lagging_reader_is_reported(tmp):
    queue = faulty_bus.good(tmp / "q")
    with tw.open_subscriber(queue, "slow"):
        assert doctor(tmp)[0] == 0
        code, seen = doctor(tmp, "--max-lag-bytes", "1000")
    assert (code, kinds(seen)) == (1, ["lagging-reader"])
    assert "20 records" in seen["findings"][0]["message"]


def test_marks_of_a_process_that_is_gone_are_reported_and_removed(tmp):
    queue = faulty_bus.good(tmp / "q")
    (queue / "READY").touch()
    (queue / "LEASE").write_text('{"pid": 1}')
    code, seen = doctor(tmp)
    assert (code, kinds(seen)) == (1, ["stale-marks"])
    assert doctor(tmp, "--fix", "--yes")[0] == 0
    assert not (queue / "READY").exists()
    assert not (queue / "LEASE").exists()


def test_notes_are_not_findings(tmp):
    queue = faulty_bus.good(tmp / "q")
    (queue / "000000000.q.damaged").touch()
    with tw.open_subscriber(queue, "r", start="latest"):
        ran = tapewire("doctor", tmp)
    assert ran.code == 0
    assert "note: retention-candidates: 2 segments, 16,384 bytes" in ran.out
    assert "note: damaged-copies: " in ran.out


def test_an_unreadable_segment_is_a_finding(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 3), crafted.numbered(3, 3))
    crafted.patch(queue, 0, 0, b"xxxx")
    code, seen = doctor(tmp)
    assert (code, kinds(seen)) == (1, ["problem"])
    assert doctor(tmp, "--fix", "--yes")[0] == 1


def test_a_bus_without_a_queue_exits_4(tmp):
    ran = tapewire("doctor", tmp)
    assert ran.code == 4
    assert tapewire("doctor", tmp / "absent").code == 4


def test_a_writer_that_comes_before_the_fix_keeps_the_queue(tmp):
    from tapewire.queue import status
    from tapewire.queue.checkup import apply_remedy, examine

    queue = faulty_bus.good(tmp / "q")
    for kind in ("stale-lock", "temporary-file"):
        FAULTS[kind](queue)
    faulty_bus.unseal(queue)
    found = examine(status(queue))
    assert len(found) == 3
    with tw.open_publisher(queue):
        for finding in found:
            with pytest.raises(tw.WriterAlreadyActive):
                apply_remedy(finding)


def test_a_reader_that_came_back_before_the_fix_is_kept(tmp):
    from tapewire.queue import status
    from tapewire.queue.checkup import apply_remedy, examine

    queue = faulty_bus.good(tmp / "q")
    faulty_bus.add_dead_reader(queue)
    (finding,) = examine(status(queue))
    with tw.open_subscriber(queue, "gone"), pytest.raises(tw.ReaderAlreadyActive):
        apply_remedy(finding)
    assert apply_remedy(finding) == ["reader 'gone' has been running since: not removed"]
    assert (queue / "readers" / "gone.meta").exists()
    (queue / "readers" / "gone.meta").unlink()
    assert apply_remedy(finding) == ["reader 'gone' no longer exists"]


def test_an_open_segment_that_is_the_last_with_records_is_not_a_finding(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 3), [], sealed=[False, False])
    assert doctor(queue)[0] == 0
    assert qf.segment_ids(queue) == [0, 1]


def test_marks_of_a_live_process_that_does_not_write_yet_are_left_alone(tmp):
    queue = faulty_bus.good(tmp / "q")
    bus_of.write_lease(queue)
    bus_of.mark_ready(queue)
    code, seen = doctor(queue, "--fix", "--yes")
    assert (code, kinds(seen)) == (0, [])
    assert bus_of.is_ready(queue)
    assert bus_of.read_lease(queue).alive


def test_marks_whose_owner_comes_before_the_fix_are_left_alone(tmp):
    queue = faulty_bus.good(tmp / "q")
    bus_of.mark_ready(queue)
    (finding,) = examine(status(queue))
    assert finding.kind == "stale-marks"
    bus_of.write_lease(queue)
    apply_remedy(finding)
    assert bus_of.is_ready(queue)
    assert bus_of.read_lease(queue).alive
