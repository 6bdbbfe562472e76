"""`tapewire tail -f` of a writer that rolls, is killed, and starts again."""

import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.crash.tape import payload_of

SEGMENT_BYTES = 8192


@pytest.fixture
def tail(tmp):
    """`tail(*arguments)` follows the queue into a file, the path of which it returns."""
    running = []

    def start(*arguments):
        out = tmp / f"tail-{len(running)}.jsonl"
        with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tapewire.cli", "tail", *arguments, str(tmp / "q")],
                    stdout=stdout,
                    stderr=stderr,
                    env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
                )
            )
        return running[-1], out

    yield start
    for process in running:
        process.kill()
        process.wait()


def export(queue, to):
    command = [sys.executable, "-m", "tapewire.cli", "export", str(queue), "--to", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    return to.read_bytes()


def lines_of(out):
    return out.read_bytes().count(b"\n")


def test_tail_follows_across_rolls_and_a_killed_writer_and_shows_what_export_writes(
    crew, tmp, tail, eventually
):
    queue = tmp / "q"
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT_BYTES)
    writer.expect("open")
    process, out = tail("-f", "--json", "--from-seq", "0")
    for _ in range(3):
        writer.say("append", 100)
        upto, metrics = writer.expect("done")
        eventually(lambda upto=upto: lines_of(out) == upto)
    assert metrics["rolls"] >= 3
    # Killed with a record begun but not committed, which the next writer must repair.
    writer.say("reserve", 100, "aa")
    writer.expect("done")
    writer.kill()
    before = lines_of(out)
    assert before == upto

    writer = crew.start("actors.appender", queue=str(queue))
    assert writer.expect("open") == [upto]
    for _ in range(2):
        writer.say("append", 100)
        upto, metrics = writer.expect("done")
        eventually(lambda upto=upto: lines_of(out) == upto)
    assert metrics["rolls"] >= 1

    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert out.with_suffix(".err").read_text() == ""
    shown = out.read_bytes()
    assert [json.loads(line)["seq"] for line in shown.splitlines()] == list(range(500))
    assert shown == export(queue, tmp / "all.jsonl")


def spoil(queue, seq):
    """Flip a bit of a record's payload."""
    segment = queue / "000000000.q"
    place = segment.read_bytes().index(payload_of(seq))
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(bytes([payload_of(seq)[0] ^ 1]))


def test_a_follower_reports_a_damaged_record_and_continues_after_it(crew, tmp, tail, eventually):
    queue = tmp / "q"
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT_BYTES)
    writer.expect("open")
    writer.say("append", 10)
    writer.expect("done")
    spoil(queue, 5)
    process, out = tail("-f", "--json", "-n", "100")
    eventually(lambda: lines_of(out) == 9)
    writer.say("append", 1)
    writer.expect("done")
    eventually(lambda: lines_of(out) == 10)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    seqs = [json.loads(line)["seq"] for line in out.read_bytes().splitlines()]
    assert seqs == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    errors = out.with_suffix(".err").read_text()
    assert errors.count("tapewire: damaged:") == 1
    assert "record 5" in errors


def test_a_follower_waits_at_a_damaged_end_until_more_comes(crew, tmp, tail, eventually):
    queue = tmp / "q"
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT_BYTES)
    writer.expect("open")
    writer.say("append", 10)
    writer.expect("done")
    spoil(queue, 9)
    process, out = tail("-f", "--json", "--from-seq", "0")
    errors = out.with_suffix(".err")
    eventually(lambda: "no valid record follows" in errors.read_text())
    writer.say("append", 2)
    writer.expect("done")
    eventually(lambda: lines_of(out) == 11)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    seqs = [json.loads(line)["seq"] for line in out.read_bytes().splitlines()]
    assert seqs == [*range(9), 10, 11]
    assert errors.read_text().count("no valid record follows") == 1


def test_a_follower_that_was_overtaken_reports_it_and_continues(crew, tmp, tail, eventually):
    queue = tmp / "q"
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT_BYTES)
    writer.expect("open")
    writer.say("append", 10)
    writer.expect("done")
    process, out = tail("-f", "--json", "--from-seq", "0")
    eventually(lambda: lines_of(out) == 10)
    process.send_signal(signal.SIGSTOP)
    writer.say("append", 300)
    upto, metrics = writer.expect("done")
    assert metrics["rolls"] >= 4
    for segment in (0, 1, 2):  # as retention does if no reader holds it
        (queue / f"{segment:09d}.q").unlink()
    process.send_signal(signal.SIGCONT)
    eventually(lambda: f'{{"seq":{upto - 1},'.encode() in out.read_bytes())
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    seqs = [json.loads(line)["seq"] for line in out.read_bytes().splitlines()]
    gaps = [(a, b) for a, b in itertools.pairwise(seqs) if b != a + 1]
    assert len(gaps) == 1
    assert gaps[0][0] < gaps[0][1]
    segments, numbers = out.with_suffix(".err").read_text().splitlines()
    assert "segment=1" in segments
    assert str(gaps[0][0] + 1) in numbers
    assert str(gaps[0][1] - 1) in numbers


def test_a_follower_ends_when_the_log_is_removed(crew, tmp, tail, eventually):
    queue = tmp / "q"
    writer = crew.start("actors.appender", queue=str(queue), segment_bytes=SEGMENT_BYTES)
    writer.expect("open")
    writer.say("append", 1)
    writer.expect("done")
    process, out = tail("-f", "--json")
    eventually(lambda: lines_of(out) == 1)
    writer.kill()
    for path in sorted(queue.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    queue.rmdir()
    assert process.wait(30) == 4
    assert "was removed" in out.with_suffix(".err").read_text()
