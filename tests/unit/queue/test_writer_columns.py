"""`append_batch` of columns of Polars, DuckDB, pandas and pyarrow, and back into them."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tapewire as tw
from tests.support.consumers import CONSUMERS

PAYLOADS = [b"", b"a", b"twelve bytes", b"thirteen byte", bytes(range(256)), b"z" * 5000] * 5


def halves(kind):
    """A column in two chunks, the second of which is a slice of a longer one."""
    return kind(PAYLOADS[:7]), kind([b"before", *PAYLOADS[7:], b"after"])[1:-1]


def duckdb_column():
    rows = pa.table({"n": range(len(PAYLOADS)), "payload": PAYLOADS})
    assert rows.num_rows
    return duckdb.sql("select payload from rows order by n").to_arrow_table()["payload"]


COLUMNS = {
    "polars": lambda: pl.Series(PAYLOADS),
    "polars, in chunks and cut": lambda: pl.concat(halves(pl.Series), rechunk=False),
    "polars, every other row": lambda: pl.Series([x for p in PAYLOADS for x in (p, b"-")])[::2],
    "polars, of a frame": lambda: pl.DataFrame({"a": [b"-"] * 30, "payload": PAYLOADS})["payload"],
    "duckdb": duckdb_column,
    "pandas": lambda: pd.Series(PAYLOADS),
    "pandas, cut": lambda: pd.Series([b"before", *PAYLOADS, b"after"])[1:-1],
    "pandas, Arrow binary": lambda: pd.Series(PAYLOADS, dtype=pd.ArrowDtype(pa.binary())),
    "pandas, Arrow view": lambda: pd.Series(PAYLOADS, dtype=pd.ArrowDtype(pa.binary_view())),
    "pyarrow, in chunks and cut": lambda: pa.chunked_array(
        halves(lambda rows: pa.array(rows, pa.large_binary()))
    ),
    "pyarrow, views in chunks and cut": lambda: pa.chunked_array(
        halves(lambda rows: pa.array(rows, pa.binary_view()))
    ),
}


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("consumer", ["pyarrow.table", "polars.DataFrame", "duckdb.sql"])
def test_a_column_goes_into_a_log_and_is_read_back(publisher, queue, make, consumer):
    numbers = publisher().append_batch(7, make(), timestamps_ns=np.arange(len(PAYLOADS)))
    assert numbers == range(len(PAYLOADS))
    with tw.open_log(queue) as reader:
        batch = reader.read_batch()
    back = CONSUMERS[consumer].columns(CONSUMERS[consumer].take(batch))
    assert back["payload"] == PAYLOADS
    assert back["timestamp_ns"] == back["seq"] == list(range(len(PAYLOADS)))


@pytest.mark.parametrize("consumer", ["pyarrow.record_batch", "polars.DataFrame"])
def test_a_batch_taken_by_a_library_is_appended_to_another_log(publisher, queue, tmp, consumer):
    """From mapping to mapping: the library has views of the first log's segments."""
    with tw.open_publisher(tmp / "source", segment_bytes=8192) as source:
        source.append_batch(3, PAYLOADS)
        with tw.open_log(tmp / "source") as reader:
            taken = CONSUMERS[consumer].take(reader.read_batch())
    writer = publisher()
    writer.append_batch(9, taken["payload"], timestamps_ns=taken["timestamp_ns"].to_numpy())
    with tw.open_log(queue) as copy, tw.open_log(tmp / "source") as original:
        for ours, theirs in zip(copy, original, strict=True):
            assert (ours.timestamp_ns, ours.payload) == (theirs.timestamp_ns, theirs.payload)


@pytest.mark.parametrize(
    "text",
    [pl.Series, pd.Series, lambda words: pa.array(words, pa.string_view())],
    ids=["polars", "pandas", "pyarrow view"],
)
def test_text_is_its_utf8(publisher, queue, text):
    words = ["", "bid", "größer als zwölf Bytes"]
    publisher().append_batch(7, text(words))
    with tw.open_log(queue) as reader:
        assert [bytes(record.payload).decode() for record in reader] == words


NULLS = {
    "polars": lambda: pl.Series([b"a", None, b"b"]),
    "polars text": lambda: pl.Series(["a", None, "a string of some length"]),
    "pandas": lambda: pd.Series([b"a", None, b"b"]),
    "pandas Arrow": lambda: pd.Series([b"a", None], dtype=pd.ArrowDtype(pa.binary_view())),
    "pyarrow chunks": lambda: pa.chunked_array([[b"a", None], [b"b"]]),
    "pyarrow large": lambda: pa.array([b"-", b"a", None], pa.large_binary()).slice(1),
}


@pytest.mark.parametrize("make", NULLS.values(), ids=NULLS)
def test_a_null_is_refused_and_nothing_is_appended(publisher, make):
    writer = publisher()
    with pytest.raises(tw.InvalidOption, match="cannot be null: row=1") as caught:
        writer.append_batch(7, make())
    assert "nulls" in caught.value.hint
    assert writer.next_seq == 0
    assert writer.append(7, b"goes on") == 0


@pytest.mark.parametrize(
    "rows",
    [
        pl.Series([1, 2]),
        pd.Series([1.5]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.nulls(2),
    ],
    ids=["polars numbers", "pandas numbers", "dictionary", "nulls alone"],
)
def test_anything_but_a_column_of_payloads_is_refused(publisher, rows):
    writer = publisher()
    with pytest.raises(tw.InvalidOption, match="format=") as caught:
        writer.append_batch(7, rows)
    assert "column" in caught.value.hint
    assert writer.next_seq == 0


def test_a_frame_without_a_column_of_payloads_is_refused(publisher):
    writer = publisher()
    with pytest.raises(tw.InvalidOption, match="name=payload") as caught:
        writer.append_batch(7, pl.DataFrame({"other": [b"a"]}))
    assert "column" in caught.value.hint
    assert writer.next_seq == 0


def test_messages_make_the_round_trip_through_numpy(publisher, queue):
    """Structured rows in, one column of a library out; `view` converts between the two."""
    quote = np.dtype([("bid", "<i8"), ("ask", "<i8")])
    rows = np.zeros(2000, quote)
    rows["bid"], rows["ask"] = np.arange(2000), np.arange(2000) + 5
    writer = publisher(segment_bytes=1 << 20)
    writer.append_batch(1, rows[::-1])
    with tw.open_log(queue) as reader:
        view = reader.read_batch().view(quote)
    assert np.array_equal(view, rows[::-1])
    assert pl.DataFrame({name: view[name] for name in quote.names})["ask"].max() == 2004
    assert pd.DataFrame(view)["bid"].tolist() == rows["bid"][::-1].tolist()
