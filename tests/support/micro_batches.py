"""Micro-batches without Spark: the calls that Spark makes to a stream reader, in the same order.

The order was recorded from PySpark 4.3.0 by a source that logs its calls. A checkpoint is a list of
offsets, one per batch, and the number of committed ones; both survive `Killed`.
"""

import json
import pickle

import pyarrow as pa

from tapewire.spark.source import TapewireSource


class Killed(Exception):
    """The driver is killed."""


class LocalSource(TapewireSource):
    """The source as registered in a session on this machine."""

    master = "local[2]"
    parallelism = 2


class MicroBatches:
    """One query and its checkpoint.

    Args:
        path: What it reads.
        options: As given to `readStream`.

    Attributes:
        batches: Rows by the number of their batch: replaced when a batch is run again.
        parts: How many tasks each batch had.
    """

    def __init__(self, path, **options):
        self.options = {"path": str(path), **{key: str(value) for key, value in options.items()}}
        self.offsets = []
        self.committed = 0
        self.batches = {}
        self.parts = {}
        self.reader = None

    def open(self):
        source = LocalSource(self.options)
        schema = source.schema()
        self.reader = source._stream_reader(schema)
        # Executors get a copy.
        self._tasks = pickle.loads(pickle.dumps(source._stream_reader(schema)))
        return self.reader

    def run(self, kill=None, now=True, most=None):
        """Run until there is no more data; `kill(point, batch)` is called at each point."""
        reader = self.open()
        ask = kill or (lambda point, batch: False)

        def may_die(point, batch):
            if ask(point, batch):
                raise Killed(f"{point} of batch {batch}")

        try:
            if now:
                reader.prepareForTriggerAvailableNow()
            limit = reader.getDefaultReadLimit()
            while True:
                number = self.committed
                start = self._end_of(number - 1)
                if number == len(self.offsets):
                    may_die("planning", number)
                    latest = _json(reader.latestOffset(start, limit))
                    if latest == start or number == most:
                        return self
                    self.offsets.append(latest)
                    may_die("offset", number)
                    if number > 0:
                        reader.commit(self._end_of(number - 1))
                self._run_batch(number, start, may_die)
        finally:
            reader.stop()

    def _run_batch(self, number, start, may_die):
        parts = self.reader.partitions(start, self._end_of(number))
        parts = pickle.loads(pickle.dumps(parts))
        may_die("partitions", number)
        tables = []
        for part in parts:
            rows = list(self._tasks.read(part))
            tables += [pa.Table.from_batches(rows)] if rows else []
            may_die("task", number)
        self.parts[number] = len(parts)
        self.batches[number] = tables
        may_die("written", number)
        self.committed += 1

    def _end_of(self, number):
        return self.offsets[number] if number >= 0 else _json(self.reader.initialOffset())

    @property
    def rows(self):
        return pa.concat_tables(
            [table for number in sorted(self.batches) for table in self.batches[number]]
        ).combine_chunks()

    def column(self, name):
        tables = [table for number in sorted(self.batches) for table in self.batches[number]]
        return [value for table in tables for value in table.column(name).to_pylist()]

    def counts(self):
        """Rows of each batch."""
        return [sum(t.num_rows for t in self.batches[n]) for n in sorted(self.batches)]


def batch(path, **options):
    """All rows of a batch query, in the order of its parts."""
    options = {"path": str(path), **{key: str(value) for key, value in options.items()}}
    source = LocalSource(options)
    reader = source.reader(source.schema())
    found = [
        pa.Table.from_batches([rows]) for part in reader.partitions() for rows in reader.read(part)
    ]
    return pa.concat_tables(found).combine_chunks() if found else None


def _json(document):
    return json.loads(json.dumps(document))
