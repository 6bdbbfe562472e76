"""A streaming query in a process of its own, to be killed: `python -m tests.crash.spark_query`.

Its one argument is JSON: where to read, with which options, and where to write. It says each step
on a line of standard output and, where it is told to hold there, waits to be killed.

What it writes is exactly once by construction: a batch that is run again overwrites its own folder.
"""

import json
import os
import signal
import subprocess
import sys
import time

from tests.crash.crew import ROOT

PATIENCE = 90.0


def main(order):
    from tapewire import spark as tws

    spark = tws.session("query", master=order.get("master", "local[2]"))
    hold_at = order.get("hold_at")

    def say(*words):
        print(json.dumps(words), flush=True)
        if list(words) == hold_at:
            time.sleep(10 * PATIENCE)

    def write(batch, number):
        say("begun", number)
        # The rows are read by executors while this goes on.
        batch.write.mode("overwrite").parquet(f"{order['target']}/batch={number}")
        say("written", number)

    frame = spark.readStream.format("tapewire").options(**order["options"]).load(order["path"])
    writer = frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", order["checkpoint"])
    if order.get("follow"):
        query = writer.trigger(processingTime="20 milliseconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    say("started")
    query.awaitTermination()
    say("ended")
    spark.stop()


class Query:
    """The test's side: start it, hear it, kill it, and look at what it has written."""

    def __init__(self, folder, path, **options):
        self.order = {
            "path": str(path),
            "options": {name: str(value) for name, value in options.items()},
            "target": str(folder / "out"),
            "checkpoint": str(folder / "checkpoint"),
        }
        self._process = None
        self._errors = folder / "errors"

    def start(self, **changes):
        env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
        with open(self._errors, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.spark_query", json.dumps(self.order | changes)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd=ROOT,
                start_new_session=True,  # its JVM and workers are killed with it
                text=True,
            )
        return self

    def hear(self):
        """What it says next; None: it has ended."""
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def await_step(self, *step):
        """Until it says this."""
        while (heard := self.hear()) != list(step):
            assert heard is not None, f"it ended before {step}:\n{self._errors.read_text()[-4000:]}"

    def await_end(self):
        self.await_step("ended")
        assert self._process.wait(PATIENCE) == 0
        self._process.stdout.close()

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        """The driver, at once: Python, the JVM, and with it everything."""
        if self._process is None or self._process.returncode is not None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill()

    def rows(self, columns, key=None):
        """All rows of all batches, sorted."""
        import pyarrow.dataset as ds

        table = ds.dataset(self.order["target"], format="parquet", partitioning=None).to_table()
        rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
        return sorted(rows, key=key)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
