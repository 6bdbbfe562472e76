"""Queues to run commands on, and ways to damage them."""

import pytest

import tapewire as tw
from tests.support.queue_format import segment_path, stored_records

FIRST_NS = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def queue(tmp):
    """300 records over several segments: types 0x3001 to 0x3003 in turn, one each second."""
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        for n in range(300):
            writer.append(
                0x3001 + n % 3,
                b"order %d" % n,
                timestamp_ns=FIRST_NS + n * 1_000_000_000,
                flags=(n % 2) << 8,
            )
        assert writer.metrics()["rolls"] >= 3
    return tmp / "q"


@pytest.fixture
def remove_segment():
    """`remove_segment(queue, id)` deletes a segment and returns the `seq` of its records."""

    def remove(queue, segment):
        lost = [record.seq for at, record in stored_records(queue) if at == segment]
        segment_path(queue, segment).unlink()
        return lost

    return remove


@pytest.fixture
def spoil():
    """`spoil(queue, payload)` flips one bit of the only record with this payload."""

    def flip(queue, payload):
        for segment in sorted(queue.glob("*.q")):
            data = segment.read_bytes()
            if (place := data.find(payload)) >= 0:
                assert data.find(payload, place + 1) < 0
                with segment.open("r+b") as file:
                    file.seek(place)
                    file.write(bytes([data[place] ^ 1]))
                return
        raise AssertionError(f"no record with this payload: {payload!r}")

    return flip
