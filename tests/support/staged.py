"""FrameRows as a Spark task gets them, staged and committed without Spark."""

import pyarrow as pa

from tapewire.archive.transaction import Archive, Digest, StagingTask
from tapewire.spark.sink.options import WriteOptions
from tapewire.spark.sink.rows import FrameRows, plan_rows

DAY_NS = 86_400 * 10**9
LOG = "v1/okx/BTC-USDT/1970-01-02/book"


def rows(seqs, *, payload=b"%d", seq=True, times=None, **keys):
    """A record batch; the payload is the sequence number, the time is on the second day of 1970."""
    seqs = list(seqs)
    columns = {
        "timestamp_ns": pa.array(times or [DAY_NS + n for n in seqs], pa.int64()),
        "type_id": pa.array([7] * len(seqs), pa.int32()),
        "flags": pa.array([0x100] * len(seqs), pa.int32()),
        "payload": pa.array([payload % n if b"%" in payload else payload for n in seqs]),
    }
    if seq:
        columns["seq"] = pa.array(seqs, pa.int64())
    for key, default in (("venue", "okx"), ("symbol", "BTC-USDT"), ("stream", "book")):
        value = keys.get(key, default)
        columns[key] = pa.array(value if isinstance(value, list) else [value] * len(seqs))
    return pa.record_batch(columns)


TYPES = {
    "timestamp_ns": "bigint",
    "type_id": "int",
    "flags": "int",
    "payload": "binary",
    "seq": "bigint",
    "venue": "string",
    "symbol": "string",
    "stream": "string",
}


class Job:
    """A write: `task` for each of its tasks, then `commit`."""

    def __init__(self, root, *, seq=True, overwrite=False, batch=None, layout=None, **options):
        keyed = {} if batch is None else {"writer": "w", "batch": str(batch)}
        self.options = WriteOptions.parse({"path": str(root), **keyed, **options})
        types = {name: kind for name, kind in TYPES.items() if seq or name != "seq"}
        self.plan = plan_rows(self.options, types, layout, keyed=batch is not None)
        self.overwrite = overwrite
        self.archive = Archive(root)
        self.job = self.archive.jobs.create(self.options.writer)
        self.tasks = []

    @property
    def directory(self):
        return self.archive.jobs.directory(self.job)

    def staging(self, name, partition):
        split = FrameRows(self.plan, partition).split
        return StagingTask(
            self.directory, name, split, self.plan.staging(self.options.segment_bytes)
        )

    def task(self, *batches):
        number = len(self.tasks)
        with self.staging(f"task-{number}", number) as stage:
            for batch in batches:
                stage.add(batch)
            self.tasks.append((stage.finish(), stage.records, stage.digest))
        return self

    def commit(self):
        digest = Digest()
        for _, _, of_task in self.tasks:
            digest.add(of_task)
        return self.archive.commit(
            self.job,
            [run for runs, _, _ in self.tasks for run in runs],
            rows=sum(count for _, count, _ in self.tasks),
            digest=str(digest) if self.plan.keyed else "",
            writer=self.options.writer,
            batch=self.options.batch,
            overwrite=self.overwrite,
            segment_bytes=self.options.segment_bytes,
            sparse=self.plan.has_seq,
            drop=self.plan.drop,
        )
