"""A strategy, the router, the exchange and the snapshotter of the demo, each killed once, by seed.

Afterwards the logs are compared: the fills that each strategy has received and counted are, by id,
those of the exchange's ledger; none is lost, none is duplicated.
"""

import pytest

from tapewire.demo.run import Options, audited, perform


def survives(root, seed, seconds):
    story = perform(root, Options(seconds=seconds, seed=seed))
    assert len(story.restarts) == 4
    assert {restart.victim for restart in story.restarts} >= {"exchange", "router", "snapshotter"}
    books = audited(root, story)
    joined = story.last("joiner", "joined").facts
    assert joined["snapshot"] > 0
    assert joined["replayed"] < books.from_start.records
    assert [path for mark in ("READY", "LEASE") for path in root.rglob(mark)] == []
    for name, strategy in books.strategies.items():
        assert strategy.fills > 0, f"{name} has not traded: nothing was shown"
    return books


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_lose_and_repeat_no_fill(tmp, seed):
    survives(tmp / "bus", seed, seconds=2.5)


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20))
def test_kills_of_twenty_seeds_lose_and_repeat_no_fill(tmp, seed):
    survives(tmp / "bus", seed, seconds=8.0)
