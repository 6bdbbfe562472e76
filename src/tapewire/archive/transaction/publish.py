"""From staged queues to logs of the archive: decided once, then carried out to the end.

Everything here happens in one process at a time, which holds the archive's commit lock:

1. what was decided before and not finished is finished, what dead jobs left is swept;
2. runs of one log become one, and every log is looked at: nothing has changed yet;
3. the manifest is written: the decision;
4. logs are made (one rename), replaced (one exchange) or appended to (from where it stopped);
5. the manifest is marked as published and the job's folder goes.

Killed before 3, nothing was written; killed after it, the next one goes on at 4. Each step of 4 can
be seen to be done: a staged queue that is not there any more was renamed, a log's next number says
how many of its records were appended.
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
_TOKEN = ".replacing"  # in a staged queue that is to replace a log, until it has


class Archive:
    """An archive that batches are committed to.

    Args:
        root: Its folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.control = path_below(self.root, CONTROL)
        self.jobs = Jobs(self.control)
        self.manifests = Manifests(self.control)

    def __repr__(self) -> str:
        return f"<Archive {os.fspath(self.root)!r}>"

    def check_place(self) -> None:
        """Make sure that there is, or can be, an archive here; makes its folder.

        Raises:
            NotALog: It is a file.
            InvalidOption: It is a log.
            StorageError: The operating system refuses.
        """
        where = os.fspath(self.root)
        if is_queue(self.root):
            raise InvalidOption(
                "an archive is a folder of logs, and this is a log itself",
                path=where,
                hint="give the folder of an archive, or one that is not there yet",
            )
        if self.root.exists() and not self.root.is_dir():
            raise NotALog(
                "this is a file, not an archive",
                path=where,
                hint="give the folder of an archive, or one that is not there yet",
            )
        try:
            make_directories(self.control)
        except OSError as error:
            raise StorageError(
                f"the folder of the archive cannot be made: {error.strerror}",
                path=error.filename or where,
                hint="give a folder that may be written to",
                errno=error.errno or 0,
            ) from None

    def recover(self, job: str | None = None) -> None:
        """Finish what was decided, sweep what dead jobs left; `job` is the caller's own."""
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
        """Publish the runs of a job, all or none; False when this very batch was there already.

        Args:
            job: Whose folder has the runs.
            runs: In the order of the tasks.
            rows: How many rows the DataFrame had.
            digest: Of the rows; for batches that may be done again.
            writer: Who writes, when the batch may be done again.
            batch: Which of the writer's batches.
            overwrite: Replace the logs that have rows.
            segment_bytes: Of new logs.
            sparse: Rows brought their numbers.
            drop: Leave out rows whose number is there or was passed.

        Raises:
            BatchConflict: The batch was published before, with other rows.
            SequenceNotRising: A log would have a number twice, or falling.
            WriterAlreadyActive: Somebody else writes to one of the logs.
            ConcurrentUse: Another job is committing, and does not end.
        """
        writer, batch = writer or ONCE, batch or job
        with commit_lock(self.control, job):
            self._recover(job)
            if digest and self._is_there(writer, batch, rows, digest):
                self.jobs.remove(job)
                return False
            if runs:
                folder = self.jobs.folder(job)
                config = WriterConfig.archive(
                    segment_bytes=segment_bytes, flush=None, sparse=sparse
                )
                actions = self._plan(folder, runs, config, overwrite=overwrite, drop=drop)
                _sync_staged(folder, actions)
                manifest = Manifest(writer, batch, job, rows, digest, tuple(actions))
                self.manifests.decide(manifest)
                try:
                    self._publish(manifest)
                except Exception as error:
                    error.add_note(
                        "The batch was decided: do not write it again. The next write to this "
                        "archive finishes it, once the cause is gone."
                    )
                    raise
            else:
                self.jobs.remove(job)
        return True

    def abort(self, job: str) -> None:
        """Take away what a job has staged, unless it was decided that it will be published."""
        with commit_lock(self.control, job):
            if not any(one.job == job for one in self.manifests.decided()):
                self.jobs.remove(job)

    def _recover(self, job: str | None) -> None:
        for manifest in list(self.manifests.decided()):
            self._publish(manifest)
        self.jobs.sweep(job)

    def _is_there(self, writer: str, batch: str, rows: int, digest: str) -> bool:
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
            what = "numbers of batches rise, and nobody can tell whether this one was published "
            what += f"before: newest={newest}"
        raise BatchConflict(
            f"{what}, writer={writer}, batch={batch}",
            path=os.fspath(self.root),
            hint="a new checkpoint, or another query, needs a name of its own: "
            'option("writer", ANOTHER NAME)',
        )

    def _plan(
        self,
        folder: Path,
        runs: Sequence[StagedRun],
        config: WriterConfig,
        *,
        overwrite: bool,
        drop: bool,
    ) -> list[Action]:
        """One staged queue for each log, and what is to be done with it; changes no log."""
        by_log: dict[str, list[StagedRun]] = defaultdict(list)
        for run in runs:
            by_log[run.log].append(run)
        actions = []
        for number, (log, of_log) in enumerate(sorted(by_log.items())):
            if len(of_log) > 1:
                into = folder / "merged" / f"{number:06d}"
                make_directories(into.parent)
                made = merge(log, [folder / run.folder for run in of_log], into, config, drop=drop)
                run = made.closed(folder)
            else:
                run = of_log[0]
            place = path_below(self.root, *log.split("/"))
            if not is_queue(place):
                if place.is_dir() and os.listdir(place):
                    raise NotALog(
                        f"the place of a log is taken by something else: log={log}",
                        path=os.fspath(place),
                        hint="move it away",
                    )
                actions.append(Action(log, "create", run.folder, run.records))
            elif overwrite:
                with Upkeep(place):
                    pass  # nobody writes to what is to go
                (folder / run.folder / _TOKEN).touch(mode=0o600)
                actions.append(Action(log, "replace", run.folder, run.records))
            else:
                actions.append(self._plan_append(place, folder / run.folder, run, config, drop))
        return actions

    def _plan_append(
        self, place: Path, staged: Path, run: StagedRun, config: WriterConfig, drop: bool
    ) -> Action:
        with LogWriter(place, _CONFIG) as target:
            next_seq, sparse = target.end_seq, target.sparse
            target.sync()  # what is there now will be there after a power cut
            largest = target.segment_bytes
            types_file.merge(place, types_file.read(staged))
        if config.segment_bytes is not None and largest < config.segment_bytes:
            _check_sizes(staged, largest - 128, place)
        keep = bool(config.sparse)
        if keep and not sparse:
            if (run.first_seq, run.last_seq) != (next_seq, next_seq + run.records - 1):
                raise InvalidOption(
                    f"the log numbers its records itself: log={run.log}, next_seq={next_seq}, "
                    f"the rows have {run.first_seq} … {run.last_seq}",
                    path=os.fspath(place),
                    hint="drop the column seq, or overwrite the log",
                )
            keep = False
        elif keep and run.first_seq < next_seq and not drop:
            raise SequenceNotRising(
                f"numbers of a log rise: seq={run.first_seq}, last={next_seq - 1}, log={run.log}",
                path=os.fspath(place),
                hint="these rows came late, or a second time: to leave such out, "
                'option("duplicates", "drop")',
            )
        elif not keep and next_seq + run.records > 2**63:
            raise InvalidOption(
                f"the log's numbers are at their end: log={run.log}, last={next_seq - 1}, "
                f"records={run.records}, highest={2**63 - 1}",
                path=os.fspath(place),
                hint="give the rows a column seq, or overwrite the log",
            )
        return Action(run.log, "append", run.folder, run.records, next_seq, keep)

    def _publish(self, manifest: Manifest) -> None:
        folder = self.jobs.folder(manifest.job)
        parents: set[Path] = set()
        for action in manifest.actions:
            place = path_below(self.root, *action.log.split("/"))
            staged = path_below(folder, *action.staged.split("/"))
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
    """How many of the staged records the log has; None when one is missing among them.

    Raises:
        CorruptMetadata: It has others, too.
    """
    if next_seq == action.next_seq:
        return 0
    first = action.next_seq if action.keep_seq else _first(staged)
    done = last = 0
    with tw.open_log(place) as there, tw.open_log(staged) as wanted:
        there.seek_seq(action.next_seq)
        for found in _past_gaps(there):
            numbers = found.seqs() - (action.next_seq - first)  # as they are staged
            at = 0
            while at < len(found):
                wanted.seek_seq(int(numbers[at]))
                want = columns_of(wanted.read_batch(4096))
                reach = int(want.seqs()[-1]) if want else -1
                stop = at + int(np.searchsorted(numbers[at:], reach, side="right"))
                if stop == at or not _are_among(found.part(at, stop), numbers[at:stop], want):
                    raise _foreign(place, staged, action, int(found.seqs()[at]))
                at = stop
            done, last = done + len(found), int(numbers[-1])
        wanted.seek_seq(first)
        expected = sum(int((part.seqs() <= last).sum()) for part in batches(wanted))
    return done if done == expected else None


def _past_gaps(reader: Any) -> Iterator[RecordColumns]:
    """What is there, whatever is missing in between."""
    while True:
        try:
            yield from batches(reader)
            return
        except GapDetected:
            continue  # told once; the next read goes on behind it


def _are_among(found: RecordColumns, numbers: Any, want: RecordColumns) -> bool:
    chosen = want.take(np.searchsorted(want.seqs(), numbers))
    return first_difference(replace(found, seq=numbers), chosen) == len(found)


def _foreign(place: Path, staged: Path, action: Action, seq: int) -> CorruptMetadata:
    return CorruptMetadata(
        f"somebody else wrote to the log after a batch for it was decided: log={action.log}, "
        f"from seq={seq}",
        path=os.fspath(place),
        hint=f"to give the batch up, move its manifest away; its records are in {staged}",
    )


def _rebuild(place: Path, staged: Path, action: Action) -> None:
    """Replace a log whose end a power cut has torn: what was there before, then what was staged.

    Pages reach the disk in any order, so that of records appended and not synced a later one may be
    there without an earlier one. What was there before the batch was synced before the decision.
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
                    f"the log is not what it was when the batch was decided: log={action.log}, "
                    f"next_seq={writer.end_seq}, noted={action.next_seq}",
                    path=os.fspath(place),
                    hint="restore the log; the batch is finished by the next write to the archive",
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
                f"the place of a log was taken while it was published: log={action.log}",
                path=os.fspath(place),
                hint="move it away: the batch is finished by the next write to the archive",
            ) from None
    elif not is_queue(place):
        raise CorruptMetadata(
            f"a log that was published is gone, and so is what was staged: log={action.log}",
            path=os.fspath(place),
            hint="restore either, or remove the manifest: its records are lost",
        )


def _replace(place: Path, staged: Path) -> None:
    """The staged queue is the log from one moment to the next; readers keep what they mapped."""
    if os.path.lexists(staged / _TOKEN):  # else the old log lies there already
        aside = staged.with_name(f"{staged.name}-old")
        if os.path.lexists(place):
            with Upkeep(place):
                _exchange(staged, place, aside)
        else:  # killed between the two renames
            os.rename(staged, place)
        # Before the token goes: without it, nobody would exchange them again behind a power cut.
        sync(place.parent)
        sync(staged.parent)
    (place / _TOKEN).unlink(missing_ok=True)
    sync(place)


def _exchange(new: Path, old: Path, aside: Path) -> None:
    """Two folders change places; where the filesystem cannot, for a moment there is none."""
    if not exchange(new, old):
        os.rename(old, aside)
        os.rename(new, old)


def _sync_staged(folder: Path, actions: Iterable[Action]) -> None:
    """Every name on the way to a staged queue is durable; what is in them is since they closed."""
    for above in {folder / Path(action.staged).parent for action in actions}:
        sync(above)
    for action in actions:
        if action.kind == "replace":
            sync(folder / action.staged)
    for above in (folder, folder.parent, folder.parent.parent, folder.parent.parent.parent):
        sync(above)


def _up_to(root: Path, folder: Path) -> list[Path]:
    found = [folder]
    while folder != root:
        folder = folder.parent
        found.append(folder)
    return found
