"""Streaming queries into the sink, whose driver is killed when each query is at its place.

Arguments: a directory with everything, and the batch at which to die, or "never". There is one
query per `PLACES`, with an archive of its name: at that batch it waits at its place until the
others are at theirs, so that one kill of the driver is a kill at each place. A worker of the first
query is killed once, in the middle of a task.
"""

import contextlib
import os
import signal
import sys
import time

from tapewire import spark as tws
from tapewire.spark.sink import writers as sink
from tapewire.spark.source import source_for

PLACES = ("staged", "half", "published")
PATIENCE = 300.0  # for the others: a first batch takes seconds, more on a busy machine
SCHEMA = (
    "timestamp_ns bigint, type_id int, flags int, payload binary, seq bigint, "
    "venue string, symbol string, stream string"
)
directory, batch = sys.argv[1], sys.argv[2]
me = os.getpid()


def end(place, driver=me):
    """Processes of the driver: its Python, its JVM, and the worker that commits."""
    from tapewire.archive.transaction.job_directories import _driver

    jvm = _driver().pid
    open(os.path.join(directory, f"{place}-{batch}"), "w").close()
    deadline = time.monotonic() + PATIENCE
    while not all(os.path.exists(os.path.join(directory, f"{each}-{batch}")) for each in PLACES):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the other queries do not come to batch {batch}")
        time.sleep(0.005)
    for pid in (driver, jvm):
        with contextlib.suppress(ProcessLookupError):  # another query was faster
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Doomed(sink.StreamWriter):
    """Kill the driver while it commits one batch."""

    def commit(self, messages, batchId):
        from tapewire.archive.transaction import publish

        place = os.path.basename(self._sink.options.path)
        doomed = str(batchId) == batch
        if doomed and place == "staged":
            publish.Manifests.decide = lambda *_: end(place)
        if doomed and place == "half":
            publish._create = lambda *_: end(place)
        super().commit(messages, batchId)
        if doomed and place == "published":
            end(place)


def lose_a_worker(batches):
    """A task that is killed in the middle, once."""
    marker = os.path.join(directory, "worker-killed")
    for number, rows in enumerate(batches):
        yield rows
        if number == 0 and rows.column("seq")[0].as_py() == 100 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


spark = tws.session(
    "killed",
    master="local[2,4]",
    conf={"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
)
source = source_for(spark)
source.streamWriter = lambda self, schema, overwrite: Doomed(self.options, schema, overwrite)
spark.dataSource.register(source)
queries = []
for place in PLACES:
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(os.path.join(directory, "in"))
    )
    if place == PLACES[0]:
        rows = rows.mapInArrow(lose_a_worker, rows.schema)
    queries.append(
        rows.writeStream.format("tapewire")
        .option("writer", "q")
        .option("checkpointLocation", os.path.join(directory, f"checkpoint-{place}"))
        .trigger(availableNow=True)
        .start(os.path.join(directory, place))
    )
for query in queries:
    query.awaitTermination()
spark.stop()
