"""What the demo keeps in records of its own comes back as it was."""

import pytest

from tapewire.demo import messages
from tapewire.demo.events import New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.messages import State, number_of, pack_checkpoint, unpack_checkpoint
from tapewire.demo.tape import records
from tapewire.errors import TapewireError
from tests.unit.demo.tapes import write


def test_a_checkpoint_holds_everything_that_an_exchange_must_know(tmp):
    engine = Engine()
    engine.apply(New("alpha", 2**64 - 1, Side.BUY, 100, 5))
    engine.apply(New("beta", 1, Side.SELL, 100, 2))
    state = State(engine, next_router_seq=3, next_crowd_seq=4, last_update=5)
    write(tmp / "wal", [(0, messages.CHECKPOINT, pack_checkpoint(state))])
    [record] = records(tmp / "wal")
    again, *counts = unpack_checkpoint(record)
    assert counts == [3, 4, 5]
    assert (again.counters(), again.levels()) == (engine.counters(), [(1, 100, 3)])


def test_an_input_with_more_outputs_than_numbers_is_refused():
    with pytest.raises(TapewireError, match="fewer than 4096 outputs"):
        number_of(7, 4096)
