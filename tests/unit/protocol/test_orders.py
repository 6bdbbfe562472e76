"""Order messages: their bytes are a contract between processes with different releases."""

import pytest

from tapewire.protocol import orders, registry

LAYOUTS = {
    "NewOrder": (0x1101, 104, "<16s16sQqqBBBBB3xQQqqq"),
    "CancelOrder": (0x1102, 64, "<16s16sQQqq"),
    "OrderAck": (0x1103, 104, "<16s16sQQBBBBB3xqqQqqq"),
    "Fill": (0x1104, 128, "<QQQ16s16sQqqBBBB4xqQqqq"),
}


@pytest.fixture(autouse=True)
def registered(own_messages):
    for name in LAYOUTS:
        registry.register(getattr(orders, name))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_of_version_1_does_not_change(name):
    layout = getattr(orders, name).layout()
    assert (layout.type_id, layout.size, layout.struct_format) == LAYOUTS[name]
    assert layout.version == 1


def test_an_order_takes_enumerations_and_has_ordinary_defaults():
    order = orders.NewOrder("alpha", "BTCUSDT", 7, 100, 5, orders.Side.SELL)
    assert order.side == orders.Side.SELL == 2
    assert order.order_type == orders.OrderType.LIMIT
    assert order.time_in_force == orders.TimeInForce.GOOD_TILL_CANCEL
