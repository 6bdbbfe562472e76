"""A streaming query in a separate process, to be killed: `python -m tests.crash.spark_query`.

It starts Spark, then reads its order, a line of JSON: where to read, with which options, and where
to write. So the next process can be started before the previous one is killed. It prints each step
as a line of standard output and waits to be killed at the step named in the order.

Its output is exactly once by construction: a batch that is run again overwrites its own directory.
"""

import json
import os
import signal
import subprocess
import sys
import time

from tests.crash.crew import ROOT

PATIENCE = 90.0
# Attempts of a task.
MASTER = "local[2,8]"
# It runs for seconds: without the parts that start slowly.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main():
    from tapewire import spark as tws

    spark = tws.session("query", master=MASTER, conf=QUICK)
    order = json.loads(sys.stdin.readline() or "null")
    if order is None:
        return  # not needed
    spark.dataSource.register(pausing(spark, order["target"], order.get("pause_at", [])))
    hold_at = order.get("hold_at")

    def say(*words):
        print(json.dumps(words), flush=True)
        if list(words) == hold_at:
            time.sleep(10 * PATIENCE)

    def write(batch, number):
        say("begun", number)
        # Executors read the rows meanwhile.
        batch.write.mode("overwrite").parquet(f"{order['target']}/batch={number}")
        say("written", number)

    frame = spark.readStream.format("tapewire").options(**order["options"]).load(order["path"])
    writer = frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", order["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    say("ended")
    spark.stop()


def pausing(spark, base, numbers):
    """The source of this session; a task that has read one of these records waits, once.

    It reports that, with its process id, in a file ``<base>.reading-<number>``.
    """
    from tapewire.spark.source import source_for

    source = source_for(spark)
    made = source.streamReader

    def pause(number):
        path = f"{base}.reading-{number}"
        if os.path.exists(path):
            return
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, path)
        time.sleep(10 * PATIENCE)

    def stream_reader(self, schema):
        reader = made(self, schema)
        plain = type(reader)

        def read(self, partition):
            for rows in plain.read(self, partition):
                yield rows
                for part in partition.parts:
                    for number in numbers:
                        if part.seq_from <= number < part.seq_to:
                            pause(number)

        reader.__class__ = type("Pausing", (plain,), {"read": read})
        return reader

    if numbers:
        source.streamReader = stream_reader
    return source


class Query:
    """The test's side: start the query, read its steps, kill it, and read its output.

    Args:
        base: Directory of its output.
        path: The source.
        runs: How often it will be started: the next process warms up while one is running.
        options: Of the source.
    """

    def __init__(self, base, path, *, runs=1, **options):
        self.order = {
            "path": str(path),
            "options": {name: str(value) for name, value in options.items()},
            "target": str(base / "out"),
            "checkpoint": str(base / "checkpoint"),
        }
        self._base = base
        self._left = runs
        self._process = None
        self._warm = None

    def start(self, **changes):
        self._process = self._warm or self._spawn()
        self._warm = None
        self._process.stdin.write(json.dumps(self.order | changes) + "\n")
        self._process.stdin.close()
        if self._left > 0:
            self._warm = self._spawn()
        return self

    def _spawn(self):
        self._left -= 1
        self._errors = self._base / "errors"
        with open(self._errors, "a") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.crash.spark_query"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1"),
                cwd=ROOT,
                start_new_session=True,  # its JVM and workers are killed with it
                text=True,
            )

    def hear(self):
        """Its next step; None: it has ended."""
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def await_step(self, *step):
        """Wait for this step."""
        while (heard := self.hear()) != list(step):
            assert heard is not None, f"it ended before {step}:\n{self._errors.read_text()[-4000:]}"

    def await_task(self, number):
        """Wait until a task has read this record and waits; the process that runs it."""
        path = f"{self.order['target']}.reading-{number}"
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(path):
            assert time.monotonic() < deadline, self._errors.read_text()[-4000:]
            assert self._process.poll() is None, self._errors.read_text()[-4000:]
            time.sleep(0.01)
        with open(path) as file:
            return int(file.read())

    def await_end(self):
        self.await_step("ended")
        assert self._process.wait(PATIENCE) == 0
        self._process.stdout.close()

    def kill(self):
        """Kill the driver at once: Python and the JVM, and with it everything."""
        _kill(self._process)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        _kill(self._process)
        _kill(self._warm)

    def rows(self, columns, key=None):
        """All rows of all batches, sorted."""
        import pyarrow.dataset as ds

        table = ds.dataset(self.order["target"], format="parquet", partitioning=None).to_table()
        rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
        return sorted(rows, key=key)


def _kill(process):
    if process is None or process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()


if __name__ == "__main__":
    main()
