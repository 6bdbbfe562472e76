"""A bus in a scratch folder."""

import pytest

from tapewire import bus


@pytest.fixture
def layout(tmp):
    return bus.Layout(tmp / "bus")


@pytest.fixture
def strategy(layout):
    """`strategy("alpha")`: its orders_out as a folder, marked READY unless told otherwise."""

    def make(name, ready=True):
        folder = layout.orders.strategy(name).orders_out
        folder.mkdir(parents=True, exist_ok=True)
        if ready:
            bus.mark_ready(folder)
        return folder

    return make
