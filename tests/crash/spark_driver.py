"""A streaming query into the sink, whose driver ends by kill -9 where it is told to.

Arguments: folder, a checkpoint and the like in it; the batch at which to die; and where:
"staged", "half", "published", or "never". A worker of batch 1 is killed in mid-task, once.
"""

import os
import signal
import sys

from tapewire import spark as tws
from tapewire.spark import sink
from tapewire.spark.source import source_for

SCHEMA = (
    "timestamp_ns bigint, type_id int, flags int, payload binary, seq bigint, "
    "venue string, symbol string, stream string"
)
folder, batch, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
me = os.getpid()


def end(driver=me):
    """Of the driver: its Python, its JVM, and the worker that commits for it."""
    from tapewire.spark.sink_jobs import _driver

    jvm = _driver().pid
    os.kill(driver, signal.SIGKILL)
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Doomed(sink.StreamWriter):
    """Ends the driver while it commits one batch."""

    def commit(self, messages, batchId):
        from tapewire.spark import publish

        if batchId == batch and where == "staged":
            publish.Manifests.decide = lambda *_: end()
        if batchId == batch and where == "half":
            publish._create = lambda *_: end()
        super().commit(messages, batchId)
        if batchId == batch and where == "published":
            end()


def lose_a_worker(batches):
    """A task that dies in its middle, once."""
    marker = os.path.join(folder, "worker-killed")
    for number, rows in enumerate(batches):
        yield rows
        if number == 0 and rows.column("seq")[0].as_py() == 100 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


spark = tws.session("killed", master="local[2,4]", conf={"spark.sql.shuffle.partitions": "2"})
source = source_for(spark)
source.streamWriter = lambda self, schema, overwrite: Doomed(self.options, schema, overwrite)
spark.dataSource.register(source)
rows = (
    spark.readStream.schema(SCHEMA)
    .option("maxFilesPerTrigger", 1)
    .parquet(os.path.join(folder, "in"))
)
query = (
    rows.mapInArrow(lose_a_worker, rows.schema)
    .writeStream.format("tapewire")
    .option("writer", "q")
    .option("checkpointLocation", os.path.join(folder, "checkpoint"))
    .trigger(availableNow=True)
    .start(os.path.join(folder, "out"))
)
query.awaitTermination()
spark.stop()
