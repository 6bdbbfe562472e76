"""The demo's own messages are decoded as they were encoded."""

import pytest

from tapewire.demo import messages
from tapewire.demo.events import New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.messages import State, number_of, pack_checkpoint, unpack_checkpoint
from tapewire.demo.queue_records import records
from tapewire.errors import TapewireError
from tests.unit.demo.queue_rows import write


def test_a_checkpoint_has_the_complete_state_of_an_exchange(tmp):
    engine = Engine()
    engine.apply(New("alpha", 2**64 - 1, Side.BUY, 100, 5))
    engine.apply(New("beta", 1, Side.SELL, 100, 2))
    state = State(engine, next_router_seq=3, next_market_seq=4, last_update=5)
    write(tmp / "wal", [(0, messages.CHECKPOINT, pack_checkpoint(state))])
    [record] = records(tmp / "wal")
    again, *counts = unpack_checkpoint(record)
    assert counts == [3, 4, 5]
    assert (again.counters(), again.levels()) == (engine.counters(), [(1, 100, 3)])


def test_an_input_with_too_many_outputs_is_refused():
    with pytest.raises(TapewireError, match="too many outputs of one input: index=4096"):
        number_of(7, 4096)
