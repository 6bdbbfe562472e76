"""Streaming queries for tests: run to the current end, and collect the rows."""

import contextlib


class Query:
    """A streaming query over the source that can be run, stopped and run again.

    Each run reads what exists when it starts. The rows of each batch are kept by its id: a batch
    that is run again replaces its rows, as in an exactly-once sink.
    """

    def __init__(self, spark, path, checkpoint, **options):
        self.spark = spark
        self.path = str(path)
        self.checkpoint = str(checkpoint)
        self.options = {key: str(value) for key, value in options.items()}
        self.batches = {}

    def start(self, on_batch=None, **trigger):
        frame = self.spark.readStream.format("tapewire").options(**self.options).load(self.path)

        def take(batch, number):
            if on_batch is not None:
                on_batch(batch, number)
            self.batches[number] = batch.toArrow()

        writer = frame.writeStream.foreachBatch(take)
        return (
            writer.option("checkpointLocation", self.checkpoint)
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def run(self, on_batch=None):
        """Read up to the current end."""
        query = self.start(on_batch)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return self

    @contextlib.contextmanager
    def running(self, interval="50 milliseconds"):
        """Follow until the end of the block."""
        query = self.start(processingTime=interval)
        try:
            yield query
        finally:
            query.stop()

    @property
    def rows(self):
        """All rows, batch by batch."""
        import pyarrow as pa

        return pa.concat_tables([self.batches[number] for number in sorted(self.batches)])

    def column(self, name):
        return self.rows.column(name).to_pylist() if self.batches else []


def batch_rows(spark, path, **options):
    """The rows that a batch read of the same source gives."""
    options = {key: str(value) for key, value in options.items()}
    return spark.read.format("tapewire").options(**options).load(str(path)).toArrow()
