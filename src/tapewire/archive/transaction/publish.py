"""Publishes staged queues as logs of the archive: decided once, then carried out to the end.

One process at a time does this, the one that holds the archive's commit lock:

1. batches that were decided and not finished are finished, and what dead jobs left is removed;
2. runs of one log are merged, and every log is checked: nothing has changed yet;
3. the manifest is written: the decision;
4. logs are created (one rename), replaced (one exchange) or appended to;
5. the manifest is marked as published, and the job's directory is removed.

If the process is killed before 3, nothing was written; if it is killed later, the next one
continues with 4. Each step of 4 shows that it is done: a staged queue that no longer exists was
renamed, and a log's next sequence number shows how many of its records were appended.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.record_columns import RecordColumns, first_difference
from tapewire.archive.transaction.job_directories import Jobs, commit_lock
from tapewire.archive.transaction.manifest import ONCE, Action, Manifest, Manifests
from tapewire.archive.transaction.staging import StagedRun, batches, columns_of, merge
from tapewire.bus.layout import CONTROL
from tapewire.config import WriterConfig
from tapewire.errors import (
    BatchConflict,
    CorruptMetadata,
    GapDetected,
    InvalidOption,
    NotALog,
    PayloadTooLarge,
    SequenceNotRising,
    StorageError,
)
from tapewire.files import exchange, is_queue, make_directories, path_below, sync
from tapewire.protocol import types_file
from tapewire.queue import open_reader
from tapewire.queue._native import Upkeep

__all__ = ["Archive"]

_CONFIG = WriterConfig.archive(flush=None)
_TOKEN = ".replacing"  # in a staged queue that replaces a log, until that is done


class Archive:
    """An archive that batches are committed to.

    Args:
        root: Its directory.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.control = path_below(self.root, CONTROL)
        self.jobs = Jobs(self.control)
        self.manifests = Manifests(self.control)

    def __repr__(self) -> str:
        return f"<Archive {os.fspath(self.root)!r}>"

    def check_place(self) -> None:
        """Create the directory of the archive, if it does not exist.

        Raises:
            NotALog: The path is a file.
            InvalidOption: The path is a log.
            StorageError: The directory cannot be created.
        """
        where = os.fspath(self.root)
        if is_queue(self.root):
            raise InvalidOption(
                "this is a log, not an archive",
                path=where,
                hint="give the directory of an archive, or one that does not exist",
            )
        if self.root.exists() and not self.root.is_dir():
            raise NotALog(
                "this is a file, not an archive",
                path=where,
                hint="give the directory of an archive, or one that does not exist",
            )
        try:
            make_directories(self.control)
        except OSError as error:
            raise StorageError(
                f"cannot create the directory of the archive: {error.strerror}",
                path=error.filename or where,
                hint="give a directory that is writable",
                errno=error.errno or 0,
            ) from None

    def recover(self, job: str | None = None) -> None:
        """Finish decided batches and remove what dead jobs left; `job` is the caller's own."""
        if not self.control.is_dir():
            return
        with commit_lock(self.control, job or "none"):
            self._recover(job)

    def commit(
        self,
        job: str,
        runs: Sequence[StagedRun],
        *,
        rows: int,
        digest: str = "",
        writer: str | None = None,
        batch: str | None = None,
        overwrite: bool = False,
        segment_bytes: int,
        sparse: bool,
        drop: bool = False,
    ) -> bool:
        """Publish the runs of a job, all or none; False if this batch was published before.

        Args:
            job: The job whose directory has the runs.
            runs: The runs, in the order of the tasks.
            rows: Number of rows in the DataFrame.
            digest: Digest of the rows, of a batch that may be written again.
            writer: Name of the writer, of a batch that may be written again.
            batch: Which of the writer's batches this is.
            overwrite: Replace the logs that have rows.
            segment_bytes: Segment size of new logs.
            sparse: Whether rows have sequence numbers.
            drop: Drop rows whose sequence number is not higher than the last one in the log.

        Raises:
            BatchConflict: The batch was published before, with other rows.
            SequenceNotRising: Sequence numbers of a log would repeat or go back.
            WriterAlreadyActive: Another process writes to one of the logs.
            ConcurrentUse: Another job is committing, and does not end.
        """
        writer, batch = writer or ONCE, batch or job
        with commit_lock(self.control, job):
            self._recover(job)
            if digest and self._was_published(writer, batch, rows, digest):
                self.jobs.remove(job)
                return False
            if runs:
                directory = self.jobs.directory(job)
                config = WriterConfig.archive(
                    segment_bytes=segment_bytes, flush=None, sparse=sparse
                )
                actions = self._plan(directory, runs, config, overwrite=overwrite, drop=drop)
                _sync_staged(directory, actions)
                manifest = Manifest(writer, batch, job, rows, digest, tuple(actions))
                self.manifests.decide(manifest)
                try:
                    self._publish(manifest)
                except Exception as error:
                    error.add_note(
                        "The batch was decided: do not write it again. The next write to this "
                        "archive finishes it, once the cause is fixed."
                    )
                    raise
            else:
                self.jobs.remove(job)
        return True

    def abort(self, job: str) -> None:
        """Remove what a job has staged, unless its batch was decided."""
        with commit_lock(self.control, job):
            if not any(one.job == job for one in self.manifests.decided()):
                self.jobs.remove(job)

    def _recover(self, job: str | None) -> None:
        for manifest in list(self.manifests.decided()):
            self._publish(manifest)
        self.jobs.sweep(job)

    def _was_published(self, writer: str, batch: str, rows: int, digest: str) -> bool:
        known = self.manifests.find(writer, batch)
        if known is not None:
            if known.same_rows(rows, digest):
                return True
            what = f"this batch was published before, with other rows: rows={rows}, "
            what += f"rows before={known.rows}"
        else:
            newest = self.manifests.newest(writer)
            if newest is None or not batch.isdecimal() or int(batch) > newest or not rows:
                return False
            what = "batch numbers must rise, and this one may have been published before: "
            what += f"newest={newest}"
        raise BatchConflict(
            f"{what}, writer={writer}, batch={batch}",
            path=os.fspath(self.root),
            hint="a new checkpoint, or another query, needs a name of its own: "
            'option("writer", ANOTHER NAME)',
        )

    def _plan(
        self,
        directory: Path,
        runs: Sequence[StagedRun],
        config: WriterConfig,
        *,
        overwrite: bool,
        drop: bool,
    ) -> list[Action]:
        """Merge the runs of each log and plan what to do with them; changes no log."""
        by_log: dict[str, list[StagedRun]] = defaultdict(list)
        for run in runs:
            by_log[run.log].append(run)
        actions = []
        for i, (log, of_log) in enumerate(sorted(by_log.items())):
            run = of_log[0]
            if len(of_log) > 1:
                into = directory / "merged" / f"{i:06d}"
                make_directories(into.parent)
                queues = [directory / run.directory for run in of_log]
                run = merge(log, queues, into, config, drop=drop).closed(directory)
            staged = directory / run.directory
            place = path_below(self.root, *log.split("/"))
            if not is_queue(place):
                if place.is_dir() and os.listdir(place):
                    raise NotALog(
                        f"the directory of a log is not empty and not a log: log={log}",
                        path=os.fspath(place),
                        hint="move it away",
                    )
                actions.append(Action(log, "create", run.directory, run.records))
            elif overwrite:
                with Upkeep(place):
                    pass  # no process writes to the log that is replaced
                (staged / _TOKEN).touch(mode=0o600)
                actions.append(Action(log, "replace", run.directory, run.records))
            else:
                actions.append(self._plan_append(place, staged, run, config, drop))
        return actions

    def _plan_append(
        self, place: Path, staged: Path, run: StagedRun, config: WriterConfig, drop: bool
    ) -> Action:
        with LogWriter(place, _CONFIG) as target:
            next_seq, sparse = target.end_seq, target.sparse
            target.sync()  # a power cut will not remove the records that exist now
            largest = target.segment_bytes
            types_file.merge(place, types_file.read(staged))
        if config.segment_bytes is not None and largest < config.segment_bytes:
            _check_sizes(staged, largest - 128, place)
        keep = bool(config.sparse)
        if keep and not sparse:
            if (run.first_seq, run.last_seq) != (next_seq, next_seq + run.records - 1):
                raise InvalidOption(
                    f"the log is not sparse: log={run.log}, next_seq={next_seq}, "
                    f"the rows have {run.first_seq} … {run.last_seq}",
                    path=os.fspath(place),
                    hint="drop the column seq, or overwrite the log",
                )
            keep = False
        elif keep and run.first_seq < next_seq and not drop:
            raise SequenceNotRising(
                "sequence numbers of a log must rise: "
                f"seq={run.first_seq}, last={next_seq - 1}, log={run.log}",
                path=os.fspath(place),
                hint="these rows are late or duplicates: to drop such rows, "
                'option("duplicates", "drop")',
            )
        elif not keep and next_seq + run.records > 2**63:
            raise InvalidOption(
                f"the log has no more sequence numbers: log={run.log}, last={next_seq - 1}, "
                f"records={run.records}, highest={2**63 - 1}",
                path=os.fspath(place),
                hint="give the rows a column seq, or overwrite the log",
            )
        return Action(run.log, "append", run.directory, run.records, next_seq, keep)

    def _publish(self, manifest: Manifest) -> None:
        directory = self.jobs.directory(manifest.job)
        parents: set[Path] = set()
        for action in manifest.actions:
            place = path_below(self.root, *action.log.split("/"))
            staged = path_below(directory, *action.staged.split("/"))
            if action.kind == "append":
                self._append(place, staged, action)
                continue
            if action.kind == "create":
                _create(place, staged, action)
            else:
                _replace(place, staged)
            parents.update(_up_to(self.root, place.parent))
        for parent in sorted(parents, reverse=True):
            sync(parent)
        self.manifests.published(manifest)
        self.jobs.remove(manifest.job)

    def _append(self, place: Path, staged: Path, action: Action) -> None:
        with LogWriter(place, _CONFIG) as target:
            done = _appended(place, staged, action, target.end_seq)
            if done is not None:
                with tw.open_log(staged) as reader:
                    if action.keep_seq:
                        reader.seek_seq(max(action.next_seq, target.end_seq))
                    else:
                        reader.seek_seq(_first(staged) + done)
                    for columns in batches(reader):
                        _append_staged(target, columns, action)
        if done is None:
            _rebuild(place, staged, action)


def _check_sizes(staged: Path, largest: int, place: Path) -> None:
    with tw.open_log(staged) as reader:
        while len(batch := reader.read_batch(4096)):
            for i in range(len(batch)):
                if len(batch.payload(i)) > largest:
                    raise PayloadTooLarge(
                        f"a payload fits no segment of the log: payload={len(batch.payload(i))} "
                        f"bytes, largest={largest}, seq={batch.seq[i]}",
                        path=os.fspath(place),
                        hint="overwrite the log with larger segments",
                    )


def _append_staged(target: LogWriter, columns: RecordColumns, action: Action) -> None:
    target.append(columns if action.keep_seq else replace(columns, seq=None))


def _first(staged: Path) -> int:
    with tw.open_log(staged) as reader:
        record = reader.next()
        return 0 if record is None else int(record.seq)


def _appended(place: Path, staged: Path, action: Action, next_seq: int) -> int | None:
    """How many of the staged records the log has; None if one is missing between them.

    Raises:
        CorruptMetadata: It has other records, too.
    """
    if next_seq == action.next_seq:
        return 0
    first = action.next_seq if action.keep_seq else _first(staged)
    done = last = 0
    with tw.open_log(place) as log, tw.open_log(staged) as wanted:
        log.seek_seq(action.next_seq)
        for found in _past_gaps(log):
            seqs = found.seqs() - (action.next_seq - first)  # as they are staged
            start = 0
            while start < len(found):
                wanted.seek_seq(int(seqs[start]))
                want = columns_of(wanted.read_batch(4096))
                reach = int(want.seqs()[-1]) if want else -1
                stop = start + int(np.searchsorted(seqs[start:], reach, side="right"))
                part = replace(found.part(start, stop), seq=seqs[start:stop])
                if stop == start or not _are_among(part, want):
                    raise _foreign(place, staged, action, int(found.seqs()[start]))
                start = stop
            done, last = done + len(found), int(seqs[-1])
        wanted.seek_seq(first)
        expected = sum(int((part.seqs() <= last).sum()) for part in batches(wanted))
    return done if done == expected else None


def _past_gaps(reader: Any) -> Iterator[RecordColumns]:
    """The records of a log, also those after a gap."""
    while True:
        try:
            yield from batches(reader)
            return
        except GapDetected:
            continue  # raised once; the next read continues after it


def _are_among(found: RecordColumns, want: RecordColumns) -> bool:
    chosen = want.take(np.searchsorted(want.seqs(), found.seqs()))
    return first_difference(found, chosen) == len(found)


def _foreign(place: Path, staged: Path, action: Action, seq: int) -> CorruptMetadata:
    return CorruptMetadata(
        f"another process wrote to the log after a batch for it was decided: log={action.log}, "
        f"from seq={seq}",
        path=os.fspath(place),
        hint=f"to discard the batch, move its manifest away; its records are in {staged}",
    )


def _rebuild(place: Path, staged: Path, action: Action) -> None:
    """Replace a log with a torn end by its earlier records and those that were staged.

    Pages reach the disk in any order: after a power cut, a record that was appended and not synced
    may exist without an earlier one. The earlier records were synced before the decision.
    """
    into = staged.with_name(f"{staged.name}-rebuilt")
    shutil.rmtree(into, ignore_errors=True)
    with open_reader(place) as old, tw.open_log(staged) as new:
        config = WriterConfig.archive(
            segment_bytes=old.segment_bytes, flush=None, sparse=old.sparse
        )
        if not old.sparse:
            first = old.next()
            config = config.replace(first_seq=0 if first is None else first.seq)
            old.seek_start()
        with LogWriter(into, config) as writer:
            for columns in batches(old):
                stop = int(np.searchsorted(columns.seqs(), action.next_seq))
                writer.append(columns.part(0, stop))
                if writer.end_seq == action.next_seq:
                    break
            if writer.end_seq != action.next_seq:
                raise CorruptMetadata(
                    f"the log has changed since the batch was decided: log={action.log}, "
                    f"next_seq={writer.end_seq}, recorded={action.next_seq}",
                    path=os.fspath(place),
                    hint="restore the log; the next write to the archive finishes the batch",
                )
            if action.keep_seq:
                new.seek_seq(action.next_seq)
            for columns in batches(new):
                _append_staged(writer, columns, action)
    types_file.merge(into, types_file.read(place))
    sync(into)
    with Upkeep(place):
        _exchange(into, place, staged.with_name(f"{staged.name}-old"))
    sync(place.parent)


def _create(place: Path, staged: Path, action: Action) -> None:
    if os.path.lexists(staged):
        make_directories(place.parent)
        try:
            os.rename(staged, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise NotALog(
                f"another process created the directory of a log: log={action.log}",
                path=os.fspath(place),
                hint="move it away: the next write to the archive finishes the batch",
            ) from None
    elif not is_queue(place):
        raise CorruptMetadata(
            f"a published log and its staged queue are missing: log={action.log}",
            path=os.fspath(place),
            hint="restore one of them, or remove the manifest: its records are lost",
        )


def _replace(place: Path, staged: Path) -> None:
    """Replace the log by the staged queue in one step; readers keep what they have mapped."""
    if os.path.lexists(staged / _TOKEN):  # else the old log is there already
        aside = staged.with_name(f"{staged.name}-old")
        if os.path.lexists(place):
            with Upkeep(place):
                _exchange(staged, place, aside)
        else:  # killed between the two renames
            os.rename(staged, place)
        # Before the token is removed: without it, they are not exchanged again after a power cut.
        sync(place.parent)
        sync(staged.parent)
    (place / _TOKEN).unlink(missing_ok=True)
    sync(place)


def _exchange(new: Path, old: Path, aside: Path) -> None:
    """Exchange two directories; if the filesystem cannot, there is none for a moment."""
    if not exchange(new, old):
        os.rename(old, aside)
        os.rename(new, old)


def _sync_staged(directory: Path, actions: Iterable[Action]) -> None:
    """Sync every directory above a staged queue; their contents were synced when they closed."""
    for above in {directory / Path(action.staged).parent for action in actions}:
        sync(above)
    for action in actions:
        if action.kind == "replace":
            sync(directory / action.staged)
    for above in (directory, *list(directory.parents)[:3]):
        sync(above)


def _up_to(root: Path, directory: Path) -> list[Path]:
    found = [directory]
    while directory != root:
        directory = directory.parent
        found.append(directory)
    return found
