"""A strategy, the router, the exchange and the snapshotter of the demo, each killed once, by seed.

Afterwards all logs are compared with each other: the fills that each strategy received and has
counted are, by id, those of the exchange; none is lost and none is duplicated.
"""

import pytest

from tapewire.demo.run import Options, audit_session, run_session


def survives(root, seed, seconds):
    history = run_session(root, Options(seconds=seconds, seed=seed))
    assert len(history.restarts) == 4
    assert {restart.victim for restart in history.restarts} >= {"exchange", "router", "snapshotter"}
    found = audit_session(root, history)
    joined = history.last("joiner", "joined").facts
    assert joined["snapshot"] > 0
    assert joined["replayed"] < found.from_start.records
    assert [path for mark in ("READY", "LEASE") for path in root.rglob(mark)] == []
    for name, strategy in found.strategies.items():
        assert strategy.fills > 0, f"{name} has not traded, so the test proves nothing"
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_lose_and_repeat_no_fill(tmp, seed):
    survives(tmp / "bus", seed, seconds=2.5)


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20))
def test_kills_of_twenty_seeds_lose_and_repeat_no_fill(tmp, seed):
    survives(tmp / "bus", seed, seconds=8.0)
