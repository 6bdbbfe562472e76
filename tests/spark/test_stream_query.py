"""Streaming queries in Spark itself: how Spark uses the reader that other tests call directly."""

import pytest
from pyspark.errors import StreamingQueryException

import tapewire as tw
from tapewire import bus
from tapewire.book.gaps import Gap, GapLedger
from tapewire.protocol.instruments import Instruments
from tapewire.queue import status
from tests.spark.streams import Query, batch_rows
from tests.support.feature_tapes import TRADE_TICK, TapeWriter, instrument, random_tape

ONE = instrument()


def append(writer, count):
    for _ in range(count):
        writer.append(1, b"%d" % writer.next_seq)


def test_runs_resume_where_the_last_one_ended_and_equal_a_batch(spark, tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 500)
        query = Query(spark, tmp / "md", tmp / "checkpoint", reader="q", max_rows=300).run()
        assert [rows.num_rows for rows in query.batches.values()] == [300, 200]
        assert status(tmp / "md").readers[0].next_seq == 300  # Spark reports all but the last
        append(writer, 300)
        query.run()
        assert query.column("seq") == list(range(800))
        assert query.rows.combine_chunks() == batch_rows(spark, tmp / "md").combine_chunks()


def test_a_live_queue_is_followed_while_it_rolls_and_retires(spark, tmp, eventually):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        append(writer, 100)
        query = Query(spark, tmp / "md", tmp / "checkpoint", reader="q", max_rows=700)
        with query.running() as running:
            while writer.next_seq < 1500:
                append(writer, 500)
                eventually(lambda: len(query.column("seq")) > writer.next_seq - 800, timeout=60)
            eventually(lambda: len(query.column("seq")) == writer.next_seq, timeout=60)
            assert status(tmp / "md").readers[0].alive
            second = Query(spark, tmp / "md", tmp / "other", reader="q")
            with pytest.raises(StreamingQueryException, match="reader='q'"):
                second.run()
            assert running.isActive
        assert query.column("seq") == list(range(writer.next_seq))
        assert status(tmp / "md").first_available_seq > 0
        (reader,) = status(tmp / "md").readers
        eventually(lambda: not status(tmp / "md").readers[0].alive, timeout=30)
        assert reader.pinned


@pytest.fixture(scope="module")
def market(module_tmp):
    """A bus with the book and the trades of an instrument, and a gap."""
    root = module_tmp / "bus"
    root.mkdir()
    Instruments([ONE]).save(root)
    encode = TapeWriter(module_tmp / "x", ONE).payload
    layout = bus.Layout(root)
    paths = {name: layout.streams.clean(ONE.venue, ONE.symbol, name) for name in ("book", "trades")}
    writers = {name: tw.open_publisher(path, segment_bytes=1 << 16) for name, path in paths.items()}
    for event in random_tape(11, 600):
        type_id, payload = encode(event)
        name = "trades" if type_id == TRADE_TICK else "book"
        writers[name].append(type_id, payload, timestamp_ns=event.time)
    for writer in writers.values():
        writer.close()
    gap = Gap("venue", ONE.venue, ONE.symbol, "book", 11, 14, 3, 2000, "numbers skip", "untrusted")
    GapLedger(paths["book"]).add(gap)
    return root


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"view": "trades"}, marks=pytest.mark.long, id="trades"),
        pytest.param(
            {"view": "book", "levels": 3, "sample": "100ms"}, marks=pytest.mark.long, id="book"
        ),
        pytest.param({"view": "features", "features": "mid,ofi,vwap_5s"}, id="features"),
        pytest.param({"view": "gaps"}, marks=pytest.mark.long, id="gaps"),
    ],
)
def test_each_view_in_micro_batches_is_that_of_a_batch(spark, market, tmp, asked):
    options = {"reader": f"q-{asked['view']}", "max_rows": 350, **asked}
    if asked["view"] in ("book", "features", "gaps"):
        options["state"] = tmp / "state"
    query = Query(spark, market, tmp / "checkpoint", **options).run()
    expected = batch_rows(spark, market, **asked)
    assert query.rows.combine_chunks().equals(expected.combine_chunks())
    assert expected.num_rows > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r'option\("reader", NAME\)'),
        pytest.param(
            {"reader": "q", "view": "book"}, r'option\("state", DIR\)', marks=pytest.mark.long
        ),
        pytest.param({"reader": "../q"}, "not a valid reader", marks=pytest.mark.long),
    ],
)
def test_errors_are_reported_by_the_query(spark, tmp, options, message):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 10)
    with pytest.raises(StreamingQueryException, match=message):
        Query(spark, tmp / "md", tmp / "checkpoint", **options).run()


def test_a_damaged_segment_is_named_or_skipped(spark, tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300)
    with tw.open_log(tmp / "md") as reader:
        reader.seek_seq(130)
        place = reader.position
    segment = tmp / "md" / f"{place.segment:09d}.q"
    content = bytearray(segment.read_bytes())
    content[place.offset : place.offset + 24] = b"\xff" * 24
    segment.write_bytes(content)
    query = Query(spark, tmp / "md", tmp / "checkpoint", reader="q", max_rows=200)
    with pytest.raises(StreamingQueryException, match=segment.name):
        query.run()
    query.options["on_damage"] = "skip"
    query.run()
    assert query.column("seq") == [n for n in range(300) if n != 130]


@pytest.mark.long
def test_a_changed_checkpoint_is_refused(spark, tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 10)
    query = Query(spark, tmp / "md", tmp / "checkpoint", reader="q").run()
    offsets = tmp / "checkpoint" / "offsets" / "0"
    text = offsets.read_text()
    assert '"md":10' in text.replace(" ", "")
    offsets.write_text(text.replace(": 10", ": -10"))
    (tmp / "checkpoint" / "offsets" / ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match=f"must be an integer, 0 to {2**63}: -10"):
        query.run()
