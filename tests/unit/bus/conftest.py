"""A bus in a temporary directory."""

import pytest

from tapewire import bus
from tests.unit.bus.sources import Sources


@pytest.fixture
def layout(tmp):
    return bus.Layout(tmp / "bus")


@pytest.fixture
def strategy(layout):
    """`strategy("alpha")`: its orders_out as a directory, marked READY by default."""

    def make(name, ready=True):
        directory = layout.orders.strategy(name).orders_out
        directory.mkdir(parents=True, exist_ok=True)
        if ready:
            bus.mark_ready(directory)
        return directory

    return make


@pytest.fixture
def sources(tmp):
    """Small queues by name, for fan-ins."""
    made = Sources(tmp)
    yield made
    made.close()
