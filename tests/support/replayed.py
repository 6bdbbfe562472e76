"""Replayed views in slices and in one pass, without Spark, part by part."""

import pyarrow as pa

from tapewire import replay
from tapewire.replay.row_stream import look_back_ns
from tapewire.scan import replay_slices
from tapewire.scan.logs import resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.replay_units import units_of
from tapewire.spark import views
from tapewire.spark.reading.schemas import arrow_schema, select


class Query:
    """One view of a path, as the source reads it."""

    def __init__(self, path, view, **options):
        texts = {name: str(value) for name, value in options.items()}
        asked = ReadOptions.parse({"path": str(path), "view": view, **texts})
        self.view = views.find(view)
        self.logs = resolve(asked.paths, asked)
        self.columns = select(self.view.schema(asked, self.logs), asked.columns)
        self.options = asked.replace(columns=tuple(column.name for column in self.columns))
        self.units = units_of(self.options, self.logs)

    @property
    def look_back_ns(self):
        if self.options.view == "book":
            return 0
        return look_back_ns(self.view.names_of(self.options), self.options.sample)

    def parts(self, wanted=1, span_ns=None):
        if span_ns is None:
            return self.view.plan(self.options, self.logs, wanted)
        found = (self.options, self.units, wanted, self.look_back_ns)
        return replay_slices.plan(*found, span_ns=span_ns)

    def read(self, parts):
        """The rows of these parts, as Spark gets them."""
        batches = [batch for part in parts for batch in self.view.read(part, self.options)]
        schema = arrow_schema(self.columns)
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema
        )

    def one_pass(self, **options):
        """The same rows from `tapewire.replay` only: every log of a unit, from its start."""
        tables = []
        for unit in self.units:
            logs = {log.name: log.path for log in unit.logs}
            symbols = None if unit.instrument is None else [unit.instrument]
            asked = {"sample": self.options.sample, "symbols": symbols, **options}
            if self.options.view == "book":
                tables.append(replay.book_rows(logs, self.options.levels, **asked))
            else:
                names = self.view.names_of(self.options)
                tables.append(replay.features(logs, names, venues=True, **asked))
        return pa.concat_tables(tables)


def assert_same_rows(got, want):
    """The columns that both have, bit for bit; doubles by their bytes."""
    assert got.num_rows == want.num_rows
    shared = [name for name in want.column_names if name in got.column_names]
    assert len(shared) > 3
    for name in shared:
        a, b = got[name].combine_chunks(), want[name].combine_chunks()
        if b.type == pa.float64():
            assert a.is_valid() == b.is_valid(), name
            assert a.fill_null(0).to_numpy().tobytes() == b.fill_null(0).to_numpy().tobytes(), name
        elif pa.types.is_list(b.type):
            assert a.offsets == b.offsets, name
            assert a.values == b.values, name
        else:
            assert a.cast(b.type) == b, name
