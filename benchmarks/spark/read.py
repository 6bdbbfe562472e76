"""Spark reading a queue, and reading the same rows and columns from uncompressed Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import Scale, repeat, scratch
from benchmarks.spark import sessions, tape

NUMBERS = "seq,timestamp_ns,type_id"


def _as_parquet(log: Path, directory: Path, files: int) -> None:
    """One file per task that Spark has for the queue; dictionaries as by default."""
    import pyarrow.parquet as pq

    from tapewire.scan import logs, options
    from tapewire.spark.reading import batch, schemas
    from tapewire.spark.views import records

    directory.mkdir()
    asked = options.ReadOptions()
    found = logs.resolve(str(log), asked)
    schema = schemas.arrow_schema(schemas.RECORDS)
    for i, part in enumerate(records.plan(asked, found, files)):
        with pq.ParquetWriter(directory / f"{i:04}.parquet", schema, compression="none") as writer:
            for rows in records.read(part, asked):
                writer.write_batch(batch.relabel(rows, schema))


def measure(spark: Any, scale: Scale) -> dict[str, Any]:
    count = scale.pick(10_000_000, 20_000)
    with scratch() as directory:
        tape.write_records(directory / "queue", count)
        _as_parquet(directory / "queue", directory / "parquet", 2 * sessions.CORES)

        def queue(**options: str) -> Any:
            return spark.read.format("tapewire").options(**options).load(str(directory / "queue"))

        def parquet() -> Any:
            return spark.read.parquet(str(directory / "parquet"))

        wanted = sessions.everything(parquet())
        found = sessions.everything(queue())
        if found != wanted or found[0] != count:
            raise RuntimeError(f"the two sides read different rows: {found}, {wanted}")
        sides = repeat(
            scale.pick(9, 1),
            lambda: sessions.seconds(lambda: sessions.everything(queue())),
            lambda: sessions.seconds(lambda: sessions.everything(parquet())),
            lambda: sessions.seconds(lambda: sessions.everything(queue(columns=NUMBERS))),
            lambda: sessions.seconds(
                lambda: sessions.everything(parquet().select(*NUMBERS.split(",")))
            ),
        )
    names = ("queue", "parquet", "queue_numbers", "parquet_numbers")
    return {"rows": count} | dict(zip(names, (side.as_dict() for side in sides), strict=True))


if __name__ == "__main__":
    with sessions.session() as spark:
        print(json.dumps(measure(spark, Scale())))
