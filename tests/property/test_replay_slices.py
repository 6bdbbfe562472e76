"""Arbitrary slices of random logs, with lost and damaged snapshots, equal a single pass."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tests.support.archive_tapes import write_archive
from tests.support.replayed import Query, assert_same_rows

NAMES = "mid,imbalance3,ofi,vwap_300ms,trade_flow_5s,volatility_3s"


def hurt_snapshots(root, seed):
    """Delete some, truncate some, change a byte of some; most are unchanged."""
    rng = random.Random(seed)
    for file in sorted(root.rglob("snapshot_*.bin")):
        fate = rng.random()
        content = bytearray(file.read_bytes())
        if fate < 0.15:
            file.unlink()
        elif fate < 0.3:
            file.write_bytes(content[: rng.randrange(len(content))])
        elif fate < 0.45:
            content[rng.randrange(len(content))] ^= 1 + rng.randrange(255)
            file.write_bytes(content)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    days=st.integers(1, 4),
    every=st.sampled_from([None, 7, 30]),
    view=st.sampled_from(["book", "features"]),
    sample=st.sampled_from(["event", "trade", "100ms", "7s"]),
    count=st.integers(1, 12),
    by_time=st.booleans(),
)
def test_slices_are_one_pass(tmp_path_factory, seed, days, every, view, sample, count, by_time):
    root = tmp_path_factory.mktemp("tape")
    write_archive(root, seed, 160, days=days, snapshots_every=every)
    options = {"levels": 3} if view == "book" else {"features": NAMES}
    asked = Query(root, view, sample=sample, partitions=count, **options)
    tape = asked.parts(span_ns=10**18)[0].logs
    length = max(log.last_ns for log in tape) - min(log.first_ns for log in tape)
    parts = asked.parts(count, max(1, length // count) if by_time else None)
    hurt_snapshots(root, seed)
    assert_same_rows(asked.read(parts), asked.one_pass())
