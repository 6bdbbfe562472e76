"""`tapewire tail`: which records it shows, and how."""

import base64
import shutil
import signal
import subprocess
import sys

import pytest

import tapewire as tw
from tests.support.commands import tapewire

SECOND = 1_000_000_000
FIRST_NS = 1_700_000_000 * SECOND


def seqs(*arguments):
    ran = tapewire("tail", *arguments, "--json")
    assert ran.code == 0, ran.err
    return [record["seq"] for record in ran.json]


def test_the_last_ten_records_are_shown(queue):
    assert seqs(queue) == list(range(290, 300))


@pytest.mark.parametrize("count", [0, 1, 63, 300, 1000])
def test_the_last_n_records_are_shown(queue, count):
    assert seqs(queue, "-n", count) == list(range(max(0, 300 - count), 300))


def test_an_empty_log_shows_nothing(tmp):
    tw.open_publisher(tmp / "q", segment_bytes=8192).close()
    assert seqs(tmp / "q") == []


def test_the_last_records_of_a_sparse_log_are_found_by_going_further_back(tmp):
    sequence = [7, 1_000, 1_000_000, 2**40, 2**40 + 1]
    with tw.open_publisher(tmp / "q", segment_bytes=8192, sparse=True) as writer:
        for seq in sequence:
            writer.append(1, b"x", seq=seq)
    assert seqs(tmp / "q", "-n", 4) == sequence[1:]
    assert seqs(tmp / "q", "-n", 9) == sequence


def test_the_last_of_a_type_are_shown_however_far_back(queue):
    with tw.open_publisher(queue) as writer:
        for _ in range(500):
            writer.append(7, b"noise")
    assert seqs(queue, "--type", "0x3001", "-n", 3) == [291, 294, 297]


def test_types_are_given_in_decimal_or_hexadecimal_and_more_than_once(queue):
    assert seqs(queue, "--type", "0x3001", "--type", 12291, "-n", 4) == [294, 296, 297, 299]


def test_the_last_records_that_grep_matches_are_shown(queue):
    assert seqs(queue, "--grep", "order 4.$", "-n", 3) == [47, 48, 49]


def test_from_a_sequence_number(queue):
    assert seqs(queue, "--from-seq", 280) == list(range(280, 300))
    assert seqs(queue, "--from-seq", 280, "-n", 3) == [280, 281, 282]
    assert seqs(queue, "--from-seq", 300) == []


@pytest.mark.parametrize(
    "time", [str(FIRST_NS + 297 * SECOND), "2023-11-14T22:18:17Z", "2023-11-14T23:18:16.5+01:00"]
)
def test_from_a_time(queue, time):
    assert seqs(queue, "--from-time", time) == [297, 298, 299]


def test_from_a_span_before_now(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append(1, b"old", timestamp_ns=FIRST_NS)
        writer.append(1, b"new")
    assert seqs(tmp / "q", "--from-time", "-5m") == [1]


def test_a_record_as_json_has_the_documented_keys(queue):
    (record,) = tapewire("tail", queue, "-n", 1, "--json").json
    assert base64.b64decode(record.pop("payload")) == b"order 299"
    assert record == {
        "seq": 299,
        "timestamp_ns": FIRST_NS + 299 * SECOND,
        "time": "2023-11-14T22:18:19.000000000Z",
        "type_id": 0x3003,
        "type": None,
        "flags": 0x100,
        "size": 9,
    }


def test_lines_of_text_are_aligned_within_80_columns(queue):
    ran = tapewire("tail", queue, "-n", 1)
    assert ran.out.splitlines() == [
        "           seq  time (UTC)                      type    flags       size",
        "           299  2023-11-14 22:18:19.000000000Z  0x3003  0x0100         9",
        "    0000  6f 72 64 65 72 20 32 39  39                       |order 299|",
    ]


def test_headers_omits_payloads(queue):
    assert len(tapewire("tail", queue, "-n", 2, "--headers").out.splitlines()) == 3
    assert "payload" not in tapewire("tail", queue, "-n", 1, "--headers", "--json").json[0]


def test_a_long_payload_is_shown_completely(tmp):
    payload = bytes(range(256)) * 300
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(1, payload)
    lines = tapewire("tail", tmp / "q").out.splitlines()[2:]
    assert max(map(len, lines)) <= 80
    assert b"".join(bytes.fromhex(line.split("  |")[0][11:]) for line in lines) == payload


def test_damage_is_reported_skipped_and_sets_the_exit_code(queue, spoil):
    spoil(queue, b"order 295")
    ran = tapewire("tail", queue, "-n", 5, "--json")
    assert ran.code == 3
    assert [record["seq"] for record in ran.json] == [294, 296, 297, 298, 299]
    assert "record 295" in ran.err
    assert ran.err.count("damaged:") == 1


def test_a_missing_segment_is_reported_and_skipped(queue, remove_segment):
    lost = remove_segment(queue, 1)
    ran = tapewire("tail", queue, "--from-seq", 0, "--json")
    assert ran.code == 3
    assert [record["seq"] for record in ran.json] == [n for n in range(300) if n not in lost]
    assert "segment=1" in ran.err


@pytest.mark.parametrize("segment", [0, 1, 2, 3])
def test_the_last_records_are_shown_whichever_segment_is_missing(queue, segment, remove_segment):
    remove_segment(queue, segment)
    assert [r["seq"] for r in tapewire("tail", queue, "-n", 5, "--json").json] == [*range(295, 300)]


def test_from_a_missing_sequence_number_the_next_records_are_shown(queue, remove_segment):
    lost = remove_segment(queue, 1)
    ran = tapewire("tail", queue, "--from-seq", lost[3], "-n", 2, "--json")
    assert ran.code == 3
    assert [record["seq"] for record in ran.json] == [lost[-1] + 1, lost[-1] + 2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 4, "no such log: nowhere"),
        (["/"], 4, "not a log of a kind"),
        (["QUEUE", "--from-seq", "1", "--from-time", "-1s"], 2, "not both"),
        (["QUEUE", "--hex", "--headers"], 2, "give one of"),
        (["QUEUE", "--grep", "("], 2, "invalid regular expression: --grep ("),
        (["QUEUE", "--type", "0xFFFF"], 2, "0xFFFE"),
        (["QUEUE", "--type", "Fill"], 2, "types.json"),
        (["QUEUE", "--from-time", "yesterday"], 2, "invalid time: time='yesterday'"),
        (["QUEUE", "--from-time", "2024-03-01T12:00"], 2, "zone"),
    ],
)
def test_usage_errors_are_reported(queue, arguments, code, message):
    ran = tapewire("tail", *(queue if word == "QUEUE" else word for word in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_following_waits_for_a_sequence_number_past_the_end(queue):
    command = [sys.executable, "-m", "tapewire.cli", "tail", queue, "--json", "-f"]
    with (
        subprocess.Popen(
            [*command, "--from-seq", "302", "-n", "2"], stdout=subprocess.PIPE, text=True
        ) as process,
        tw.open_publisher(queue) as writer,
    ):
        for _ in range(5):
            writer.append(1, b"more")
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [line.split(",")[0] for line in out.splitlines()] == ['{"seq":302', '{"seq":303']


@pytest.mark.parametrize("directory_stays", [False, True])
def test_following_ends_when_another_queue_takes_its_place(queue, directory_stays):
    command = [sys.executable, "-m", "tapewire.cli", "tail", queue, "-f", "-n", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        for path in queue.iterdir() if directory_stays else [queue]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with tw.open_publisher(queue, segment_bytes=8192) as writer:
            writer.append(1, b"of another queue")
            try:
                out, err = process.communicate(timeout=10)
            finally:
                process.kill()
    assert (process.returncode, out) == (4, b"")
    assert b"the log was removed while being followed" in err


def test_ctrl_c_ends_following_with_exit_code_0(queue):
    command = [sys.executable, "-m", "tapewire.cli", "tail", queue, "-f", "-n", "1", "--headers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")
