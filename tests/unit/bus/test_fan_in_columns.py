"""Batches of a fan-in have a column with the source of each record."""

import duckdb
import pyarrow as pa


def test_a_batch_has_a_column_of_sources(sources):
    sources.write("alpha", 1, 3).write("b", 2)
    batch = sources.fan().read_batch()
    assert batch.source.tolist() == ["alpha", "b", "alpha"]
    assert batch.source is batch.source
    assert not batch.source.flags.writeable
    assert [record.source for record in batch] == ["alpha", "b", "alpha"]
    assert batch[1:].source.tolist() == ["b", "alpha"]
    assert batch[2].source == "alpha"


def test_a_batch_keeps_its_sources_when_those_of_the_fan_in_change(sources):
    sources.write("a", 1).write("b", 2).write("c", 3)
    fan = sources.fan("a", "b")
    batch = fan.read_batch()
    fan.remove("a")
    fan.add("c", sources.readers("c")["c"])
    assert fan.read_batch().source.tolist() == ["c"]
    assert batch.source.tolist() == ["a", "b"]


def test_an_empty_batch_has_the_column_too(sources):
    sources.write("a")
    batch = sources.fan().read_batch()
    assert batch.source.tolist() == []
    assert pa.record_batch(batch).schema.names[-1] == "source"


def test_records_of_other_readers_have_no_source(sources):
    sources.write("a", 1)
    reader = sources.readers("a")["a"]
    assert reader.next().source is None
    reader.seek_start()
    batch = reader.read_batch()
    assert batch.source is None
    assert batch[0].source is None
    assert "source" not in pa.record_batch(batch).schema.names


def test_arrow_has_the_names_as_a_dictionary(sources):
    sources.write("a", 1, 3, payload=b"a payload too long for Arrow to keep inline")
    sources.write("b", 2, payload=b"another payload too long for that, by far")
    fan = sources.fan()
    batch = fan.read_batch()
    table = pa.table(batch)
    fan.close()
    del batch
    assert table.column("source").to_pylist() == ["a", "b", "a"]
    assert pa.types.is_dictionary(table.schema.field("source").type)
    assert [bytes(value)[:7] for value in table.column("payload").to_pylist()] == [
        b"a paylo", b"another", b"a paylo"
    ]  # fmt: skip


def test_polars_and_duckdb_group_by_source(sources):
    sources.write("a", 1, 3).write("b", 2)
    batch = sources.fan().read_batch()
    counts = batch.to_polars().group_by("source").len().sort("source")
    assert counts.rows() == [("a", 2), ("b", 1)]
    rows = duckdb.sql("select source, count(*) from batch group by 1 order by 1").fetchall()
    assert rows == [("a", 2), ("b", 1)]
