"""Where rows of a source are missing, the views of Spark agree with a replay."""

import pytest

from tapewire import ingest, replay
from tapewire import spark as tws
from tapewire.book.gaps import GapLedger
from tests.support.archives import logs_of
from tests.support.order_feeds import FEEDS, session


@pytest.fixture(scope="module")
def source(spark):
    tws.register(spark)
    return spark


@pytest.mark.parametrize("name", FEEDS)
def test_views_of_a_file_with_a_missing_chunk_agree_with_a_replay(source, tmp, name):
    feed = FEEDS[name]
    sessions = [session(300), session(300, 2, 10_000)]
    files = feed.write(tmp, sessions, damage=lambda rows: rows[:100] + rows[160:])
    ingest.run(feed.format, files, tmp / "archive", **feed.options)
    logs = logs_of(tmp / "archive", feed.venue, feed.symbol, "book")
    with replay.Replay(logs) as running:
        want = [(step.timestamp_ns, step.seq, step.book.trusted) for step in running]
    assert {trusted for *_, trusted in want} == {True, False}

    def rows(view, log, **options):
        reader = source.read.format("tapewire").option("view", view)
        return reader.options(**options).load(str(log)).toArrow().to_pylist()

    books = [row for log in logs for row in rows("book", log, levels="1")]
    assert [(row["timestamp_ns"], row["seq"], row["trusted"]) for row in books] == want
    values = [row for log in logs for row in rows("features", log, features="bid_depth1")]
    assert [row["bid_depth1"] is not None for row in values] == [trusted for *_, trusted in want]
    recorded = [(gap.kind, gap.seq) for log in logs for gap in GapLedger(log).read()]
    assert [(row["kind"], row["seq"]) for log in logs for row in rows("gaps", log)] == recorded
