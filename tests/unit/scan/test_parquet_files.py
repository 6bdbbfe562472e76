"""Rewritten Parquet files have the same rows in the same order, in files of the size asked for."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tapewire.errors import CorruptSource
from tapewire.scan.parquet_files import parquet_files, rewrite_parquet


@pytest.fixture
def new(tmp):
    (tmp / "new").mkdir()
    return tmp / "new"


def write(directory, number, table):
    pq.write_table(table, directory / f"{number:03d}.parquet")


def rows_of(directory):
    return [row for path in parquet_files(directory) for row in pq.read_table(path).to_pylist()]


def test_small_files_become_one_in_the_order_of_their_names(tmp, new):
    for number in (2, 0, 1):
        write(tmp, number, pa.table({"n": [number, number + 10], "s": ["a", None]}))
    out = rewrite_parquet(parquet_files(tmp), new, 1 << 20)
    assert out.names == ["part-00000.parquet"]
    assert (out.rows, out.bytes) == (6, (new / "part-00000.parquet").stat().st_size)
    assert rows_of(new) == rows_of(tmp)


def test_a_file_of_the_target_size_is_complete(tmp, new):
    noise = np.random.default_rng(1).integers(0, 2**62, 200_000)
    write(tmp, 0, pa.table({"n": noise}))
    out = rewrite_parquet(parquet_files(tmp), new, 400_000)
    assert out.names == [f"part-{i:05d}.parquet" for i in range(len(out.names))]
    assert len(out.names) == 4  # of 65,536 rows, 8 bytes each; the last one has the rest
    assert rows_of(new) == rows_of(tmp)


def test_the_schema_and_its_metadata_are_kept(tmp, new):
    schema = pa.schema([pa.field("n", pa.int16(), nullable=False)], {b"of": b"tests"})
    write(tmp, 0, pa.table({"n": [1]}, schema))
    rewrite_parquet(parquet_files(tmp), new, 1 << 20)
    found = pq.read_schema(new / "part-00000.parquet")
    assert found.equals(schema)
    assert found.metadata[b"of"] == b"tests"


def test_files_without_rows_become_a_file_without_rows(tmp, new):
    write(tmp, 0, pa.table({"n": pa.array([], pa.int64())}))
    assert rewrite_parquet(parquet_files(tmp), new, 1 << 20).rows == 0
    assert pq.read_table(new / "part-00000.parquet").num_rows == 0


def test_files_with_other_columns_are_refused(tmp, new):
    write(tmp, 0, pa.table({"n": [1]}))
    write(tmp, 1, pa.table({"n": ["1"]}))
    with pytest.raises(CorruptSource, match="columns are not those of the first file") as caught:
        rewrite_parquet(parquet_files(tmp), new, 1 << 20)
    assert caught.value.path == str(tmp / "001.parquet")


def test_a_truncated_file_is_refused(tmp, new):
    write(tmp, 0, pa.table({"n": list(range(1000))}))
    path = tmp / "000.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptSource, match="cannot be read"):
        rewrite_parquet(parquet_files(tmp), new, 1 << 20)


def test_hidden_and_other_files_are_not_rows(tmp):
    for name in ("_a.parquet", ".b.parquet", "c.parquet.crc", "d.parquet"):
        (tmp / name).write_bytes(b"")
    (tmp / "e.parquet").mkdir()
    assert parquet_files(tmp) == [tmp / "d.parquet"]
