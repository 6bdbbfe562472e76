"""Records embedded in payloads are never mistaken for records of the queue."""

import struct

import pytest

import tapewire as tw
from tapewire.queue.repair import repair
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.processes import Child

SEGMENT_BYTES = 1 << 20


def embedded(tmp, *, sparse):
    """Consecutive records of a queue, first those that it will contain itself."""
    other = crafted.write_log(
        tmp / "other", [b"forged %d" % n for n in range(60)], segment_bytes=SEGMENT_BYTES
    )
    own = crafted.write_log(
        tmp / "own", [b"forged %d" % n for n in range(20)], sparse=sparse, killed=True
    )
    unkeyed = [qf.record(n, b"forged %d" % n) for n in range(60)]
    taken = [crafted.raw_record(q, *place) for q in (own, other) for place in qf.stored_records(q)]
    return b"".join(taken + unkeyed)


def write_and_embed(queue, *, sparse, killed=False, count=8):
    """Records whose payloads embed records: of this queue, of another one, of one without a key.

    Those of the other two have the numbers that a search after damage looks for.
    """
    live = queue.with_name(queue.name + ".live")
    other = crafted.write_log(queue.with_name("other"), [b"forged"] * 40)
    strangers = [crafted.raw_record(other, *place) for place in qf.stored_records(other)]
    payloads = []

    def payload(n):
        own = []
        if n > 0:
            own = [crafted.raw_record(live, *place) for place in qf.stored_records(live)[-2:]]
        unkeyed = [qf.record(seq, b"forged") for seq in range(n, n + 5)]
        parts = [*strangers[n : n + 5], *unkeyed, *own]
        payloads.append((b"own %d" % n).ljust(64) + b"".join(parts)[:20_000])
        return payloads[-1]

    crafted.write_log(
        queue,
        map(payload, range(count)),
        segment_bytes=SEGMENT_BYTES,
        sparse=sparse,
        killed=killed,
    )
    return list(enumerate(payloads))


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def sparse(request):
    return request.param


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("lost", [1, 4, 7])
@pytest.mark.parametrize("at", [1, 8, 17, 24, 33], ids=lambda at: f"byte {at}")
def test_a_flipped_bit_in_a_header_shows_none_of_the_embedded_records(
    tmp, sparse, killed, restarted, lost, at
):
    queue = tmp / "q"
    written = write_and_embed(queue, sparse=sparse, killed=killed)
    segment, stored = qf.stored_records(queue)[lost]
    assert len(stored.payload) > 128
    crafted.damage(queue, segment, stored.offset, at=at)
    if restarted:
        qf.restart_machine(queue)
    left = [record for record in written if record[0] != lost]
    numbers = (None, None) if sparse else (lost, lost)

    records, events = crafted.shown(queue)
    assert records == left
    # After the last record of a killed writer's log, no number follows that would show the loss.
    ends = killed and lost == 7
    assert events == [("damage", stored.offset, *((None, None) if ends else numbers))]

    repaired = tmp / "repaired"
    queue.rename(repaired)
    assert repair(repaired).damaged + repair(repaired).padded <= 1
    crafted.reopen(repaired)
    records, events = crafted.shown(repaired)
    assert records[:-1] == left
    assert records[-1][1] == b"new"
    # After a restart of the machine, recovery does not know that there was one, either.
    gap = [] if sparse or (ends and restarted) else [("gap", lost, lost)]
    assert events == gap


RESERVE = """
import sys
import tapewire as tw

queue, bytes_, sparse = sys.argv[1:]
data = open(bytes_, "rb").read()
with tw.open_publisher(queue, segment_bytes=1 << 20, sparse=bool(int(sparse))) as writer:
    for n in range(20):
        writer.append(1, b"own %d" % n)
    raw = open(queue + "/000000000.q", "rb").read()[64 : 64 + 20 * 128]
    slot = writer.reserve(1, len(raw) + len(data))
    slot.buffer[:] = raw + data
    print(writer.next_seq, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("again", [crafted.reopen, repair], ids=["reopen", "repair"])
def test_a_kill_with_an_open_reservation_forges_nothing(tmp, sparse, restarted, again):
    queue = tmp / "q"
    (tmp / "bytes").write_bytes(embedded(tmp, sparse=sparse))
    with Child(RESERVE, queue, tmp / "bytes", int(sparse)) as writer:
        next_seq = int(writer.line())
        writer.kill()
    if restarted:
        qf.restart_machine(queue)
    own = [(n, b"own %d" % n) for n in range(20)]
    assert crafted.shown(queue) == (own, [])
    again(queue)
    metrics = crafted.reopen(queue)
    assert metrics["next_seq"] == next_seq + (again is crafted.reopen)
    records, events = crafted.shown(queue)
    assert (records[:20], events) == (own, [])
    assert [payload for _, payload in records[20:]] == [b"new"] * (
        2 if next_seq != metrics["next_seq"] else 1
    )


def appends(writer):
    """Ways to append one record with the next number."""
    return {
        "append": lambda: writer.append(1, b"none"),
        "append_batch": lambda: writer.append_batch(1, [b"none"]),
        "reserve": lambda: writer.reserve(1, 4).commit(),
    }


@pytest.mark.parametrize("by", ["append", "append_batch", "reserve"])
def test_the_number_without_a_successor_is_refused(tmp, by):
    last = 2**64 - 2
    with tw.open_publisher(tmp / "q", segment_bytes=8192, sparse=True) as writer:
        assert writer.append(1, b"last but one", seq=last - 1) == last - 1
        assert writer.append(1, b"last") == last
        with pytest.raises(tw.TapewireError, match="no sequence numbers are left"):
            appends(writer)[by]()
        with pytest.raises(tw.TapewireError):
            writer.append(1, b"none", seq=2**64 - 1)
    with tw.open_publisher(tmp / "q") as writer, pytest.raises(tw.TapewireError):
        appends(writer)[by]()
    assert crafted.shown(tmp / "q")[0] == [(last - 1, b"last but one"), (last, b"last")]
    data = (tmp / "q" / "000000000.q").read_bytes()
    assert 2**64 - 1 not in {seq for (seq,) in struct.iter_unpack("<Q", data[64:])}
