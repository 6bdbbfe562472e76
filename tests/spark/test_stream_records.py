"""Streaming records: every record once, in order, across batches, stops and restarts."""

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.spark.streams import Query, batch_rows

SMALL = {"segment_bytes": 8192}


def append(writer, count):
    for _ in range(count):
        writer.append(1, b"%d" % writer.next_seq)


@pytest.fixture
def query(spark, tmp):
    def make(path="md", checkpoint="checkpoint", **options):
        return Query(spark, tmp / path, tmp / checkpoint, **{"reader": "q", **options})

    return make


def test_batches_go_on_where_the_last_run_ended_and_equal_a_batch(spark, tmp, query):
    with tw.open_publisher(tmp / "md", **SMALL) as writer:
        append(writer, 500)
        q = query(max_rows=200)
        q.run()
        assert [batch.num_rows for batch in q.batches.values()] == [200, 200, 100]
        append(writer, 300)
        q.run()
        assert q.column("seq") == list(range(800))
        assert q.rows.combine_chunks() == batch_rows(spark, tmp / "md").combine_chunks()
