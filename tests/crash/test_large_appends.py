"""A writer killed in the middle of a large append leaves no record of what it copied."""

import pytest

import tapewire as tw
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.processes import Child

RECORDS = 20
APPEND = """
import sys
import tapewire as tw

queue, bytes_, sparse = sys.argv[1:]
data = open(bytes_, "rb").read()
data *= (64 << 20) // len(data)
with tw.open_publisher(queue, segment_bytes=256 << 20, sparse=bool(int(sparse))) as writer:
    for n in range(20):
        writer.append(1, b"own %d" % n)
    print("ready", flush=True)
    while True:
        writer.append(2, data)
"""


def write_offset(queue):
    return qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())["write_offset"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kill", range(3))
def test_a_kill_in_a_large_append_forges_nothing(tmp, eventually, sparse, restarted, kill):
    other = crafted.write_log(
        tmp / "other", [b"forged %d" % n for n in range(200)], segment_bytes=1 << 20
    )
    copies = [crafted.raw_record(other, *place) for place in qf.stored_records(other)]
    (tmp / "bytes").write_bytes(b"".join(copies))
    queue = tmp / "q"
    with Child(APPEND, queue, tmp / "bytes", int(sparse)) as writer:
        writer.expect("ready")
        begun = 64 + 128 * RECORDS + kill * ((64 << 20) + 128)

        def copying():
            """Whether bytes of the payload after `kill` complete ones are stored."""
            with open(qf.segment_path(queue, 0), "rb") as file:
                file.seek(begun + 64)
                return any(file.read(64))

        eventually(copying)
        writer.kill()
    if restarted:
        qf.restart_machine(queue)
    small, complete = read(queue)
    assert small == [(n, b"own %d" % n) for n in range(RECORDS)]
    assert complete == list(range(RECORDS, RECORDS + len(complete)))
    metrics = crafted.reopen(queue)
    assert metrics["next_seq"] == RECORDS + len(complete)
    assert metrics["damaged_spans"] == metrics["gaps_found"] == 0
    again, still = read(queue)
    assert again == [*small, (RECORDS + len(complete), b"new")]
    assert still == complete


def read(queue):
    """The small records, and the sequence numbers of the large ones; nothing may raise."""
    small, large = [], []
    with tw.open_log(queue) as reader:
        for record in reader:
            if record.type_id == 2:
                large.append(record.seq)
            else:
                small.append((record.seq, bytes(record.payload)))
    return small, large
