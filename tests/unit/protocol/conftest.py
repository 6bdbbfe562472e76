"""A message, a queue to write it to, and a registry that is restored after the test."""

import pytest

import tapewire as tw


@pytest.fixture(autouse=True)
def _own_messages(own_messages):
    pass


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
