"""Messages that a test defines are gone when it ends."""

import pytest

import tapewire as tw
from tapewire import log
from tapewire.protocol import registry


@pytest.fixture(autouse=True)
def own_registry():
    messages, decoders = dict(registry._messages), dict(log._decoders)
    yield
    for table, before in ((registry._messages, messages), (log._decoders, decoders)):
        table.clear()
        table.update(before)


@pytest.fixture
def fill():
    @tw.message(0x2001, version=1)
    class Fill:
        order_id: tw.u64
        price: tw.i64
        qty: tw.i64
        side: tw.u8
        venue: tw.char[8]

    return Fill


@pytest.fixture
def queue(tmp):
    return tmp / "q"


@pytest.fixture
def writer(queue):
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        yield writer
