"""Parquet files of a log, made up."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tapewire.scan.parquet_logs import META, SCHEMA


def write_rows(directory, seqs=(1, 2), **columns):
    """The file of a sparse log, with these columns instead of valid ones."""
    directory.mkdir(parents=True)
    about = {"version": 1, "sparse": True, "first_seq": 0, "segment_bytes": 65536, "checksum": True}
    valid = {
        "seq": list(seqs),
        "timestamp_ns": list(seqs),
        "type_id": [7] * len(seqs),
        "flags": [0] * len(seqs),
        "payload": [b"x"] * len(seqs),
        **{name: ["x"] * len(seqs) for name in ("venue", "symbol", "stream", "date")},
    }
    schema = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
    table = pa.table({**valid, **columns}, schema.with_metadata({META: json.dumps(about)}))
    pq.write_table(table, directory / "part-00000.parquet")
    return directory
