"""A log decoded with its `types.json`, by a program that defines none of its messages."""

import pytest

import tapewire as tw
from tapewire import log, protocol


@pytest.fixture
def records(queue, fill):
    """A Fill, bytes of an unknown type, and a Fill of an unknown size, of another program."""
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        writer.append_message(fill(1, -2, 3, 2, "XNAS"))
        writer.append(0x3000, b"other")
        writer.append(0x2001, b"short")
    protocol.forget(fill)
    with tw.open_log(queue) as reader:
        return reader.read_batch()


def test_a_record_decodes_to_its_fields_by_name(queue, records):
    table = protocol.TypeTable.load(queue)
    assert table.decode(records[0]) == {
        "order_id": 1,
        "price": -2,
        "qty": 3,
        "side": 2,
        "venue": "XNAS",
    }
    assert table.find(records[0]).__name__ == "Fill"


def test_an_unknown_type_or_size_is_none(queue, records):
    table = protocol.TypeTable.load(queue)
    assert [table.decode(record) for record in records[1:]] == [None, None]
    assert [table.find(record) for record in records[1:]] == [None, None]


def test_loading_registers_nothing(queue, records):
    protocol.load_types(queue)
    with pytest.raises(log.UnknownMessage):
        records[0].decode()


def test_loaded_classes_decode_batches_and_can_be_registered(queue, records):
    (cls,) = protocol.load_types(queue)
    assert cls.decode(records[:1])["qty"].tolist() == [3]
    protocol.register(cls)
    assert repr(records[0].decode()) == "Fill(order_id=1, price=-2, qty=3, side=2, venue='XNAS')"


def test_loaded_classes_write_the_same_bytes(queue, records):
    (cls,) = protocol.load_types(queue)
    assert bytes(cls.decode(records[0])) == bytes(records[0].payload)
