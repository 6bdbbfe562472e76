"""The views of the Spark source read in this process, as its executors read them: no JVM."""

import pyarrow as pa

from tapewire.scan.logs import resolve
from tapewire.scan.options import ReadOptions
from tapewire.spark import views
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import BatchReader


def parsed(path, **options):
    texts = {name: str(value) for name, value in options.items()}
    return ReadOptions.parse({"path": str(path), **texts})


def reader(path, **options):
    asked = parsed(path, **options)
    logs = resolve(asked.paths, asked)
    columns = schemas.select(views.find(asked.view).schema(asked, logs), asked.columns)
    names = tuple(column.name for column in columns)
    return BatchReader(asked.replace(columns=names), columns, logs, parallelism=2)


def slices(path, **options):
    """What is planned, unpacked."""
    return [part for task in reader(path, **options).partitions() for part in task.parts]


def table(path, **options):
    return table_of(reader(path, **options))


def table_of(planned, partitions=None):
    """All rows, or the rows of the given partitions."""
    partitions = planned.partitions() if partitions is None else partitions
    batches = [batch for part in partitions for batch in planned.read(part)]
    return pa.Table.from_batches(batches, schemas.arrow_schema(planned._columns))


def rows(path, **options):
    """``(seq, timestamp_ns, type_id, flags, payload)`` of each record, as `entries` has them."""
    names = ("seq", "timestamp_ns", "type_id", "flags", "payload")
    found = table(path, **options)
    return list(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def read_by_reader(path, wanted=lambda record: True):
    """The same by a reader."""
    import tapewire as tw

    with tw.open_log(path) as log:
        return [
            (r.seq, r.timestamp_ns, r.type_id, r.flags, bytes(r.payload)) for r in log if wanted(r)
        ]
