import pytest

import tapewire as tw
from tests.support.statuses import MadeUpBus


@pytest.fixture
def bus(tmp):
    """A bus without files; see tests/support/statuses.py."""
    return MadeUpBus(tmp)


@pytest.fixture
def lagging(tmp):
    """The writer of a real bus, at seq 99, with a reader 60 records behind."""
    with (
        tw.open_publisher(tmp / "bus" / "md", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "bus" / "md", "slow") as reader,
    ):
        for n in range(100):
            writer.append(1, bytes(100), timestamp_ns=n * 10**9)
        for _ in range(40):
            reader.next()
        reader.commit()
        yield writer
