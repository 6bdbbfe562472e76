"""Batches into the archive: decided once, carried out to the end, all or nothing."""

import json
import os

import pytest
from pyspark.sql.types import StructType

import tapewire as tw
from tapewire import archive
from tapewire.archive.transaction import job_directories as sink_jobs
from tapewire.archive.transaction import publish
from tapewire.archive.transaction.publish import Archive
from tapewire.protocol import fields, types_file
from tapewire.protocol.layout import MessageLayout
from tapewire.spark.sink.writers import BatchWriter
from tests.support.records import stored
from tests.support.staged import DAY_NS, LOG, Job, rows

OTHER = LOG.replace("BTC", "ETH")


class Killed(BaseException):
    """Ends a process in these tests; tests/crash kills real ones."""


def seqs_of(path):
    return [entry.seq for entry in stored(path)]


def staging_of(root):
    directory = root / "_tapewire" / "staging"
    return sorted(os.listdir(directory)) if directory.exists() else []


def test_a_new_log_is_sparse_and_keeps_sequence_numbers(tmp):
    Job(tmp).task(rows([3, 17])).commit()
    with tw.open_publisher(tmp / LOG) as writer:
        assert writer.sparse
    assert seqs_of(tmp / LOG) == [3, 17]


def test_a_new_log_of_rows_without_sequence_numbers_starts_at_0(tmp):
    job = Job(tmp, seq=False)
    job.task(rows([5, 4], seq=False)).task(rows([1], seq=False)).commit()
    assert [(e.seq, e.payload) for e in stored(tmp / LOG)] == [(0, b"5"), (1, b"4"), (2, b"1")]


def test_the_next_batch_is_appended(tmp):
    Job(tmp).task(rows([1, 2])).commit()
    Job(tmp).task(rows([5])).task(rows([4])).commit()
    assert seqs_of(tmp / LOG) == [1, 2, 4, 5]


def test_rows_without_sequence_numbers_are_appended(tmp):
    for first in (0, 2):
        Job(tmp, seq=False).task(rows([first, first + 1], seq=False)).commit()
    assert [(e.seq, e.payload) for e in stored(tmp / LOG)] == [(n, b"%d" % n) for n in range(4)]


def test_a_committed_job_leaves_nothing_staged(tmp):
    Job(tmp).task(rows([1])).commit()
    assert staging_of(tmp) == []


def test_sequence_numbers_that_go_back_are_refused_and_nothing_is_published(tmp):
    Job(tmp).task(rows([1, 9])).commit()
    job = Job(tmp).task(rows([5, 12])).task(rows([1], symbol="ETH-USDT"))
    with pytest.raises(tw.SequenceNotRising, match=rf"seq=5, last=9, log={LOG}"):
        job.commit()
    assert seqs_of(tmp / LOG) == [1, 9]
    assert not (tmp / OTHER).exists()


def test_late_rows_are_dropped_if_asked_for(tmp):
    Job(tmp).task(rows([1, 9])).commit()
    Job(tmp, duplicates="drop").task(rows([5, 9, 12])).commit()
    assert seqs_of(tmp / LOG) == [1, 9, 12]


def test_a_dense_log_accepts_the_next_sequence_numbers_only(tmp):
    with tw.open_publisher(tmp / LOG, segment_bytes=1 << 20) as writer:
        writer.append(1, b"0", timestamp_ns=DAY_NS)
    Job(tmp).task(rows([1, 2])).commit()
    assert seqs_of(tmp / LOG) == [0, 1, 2]
    with pytest.raises(tw.InvalidOption, match=r"next_seq=3, the rows have 7 … 7"):
        Job(tmp).task(rows([7])).commit()


def test_overwriting_replaces_only_the_logs_that_have_rows(tmp):
    Job(tmp).task(rows([1, 2])).task(rows([1], symbol="ETH-USDT")).commit()
    Job(tmp, overwrite=True).task(rows([7])).commit()
    assert seqs_of(tmp / LOG) == [7]
    assert seqs_of(tmp / OTHER) == [1]
    assert not (tmp / LOG / ".replacing").exists()


def test_a_reader_of_a_replaced_log_keeps_what_it_has_mapped(tmp):
    Job(tmp).task(rows([1, 2])).commit()
    with tw.open_log(tmp / LOG) as reader:
        first = reader.next()
        Job(tmp, overwrite=True).task(rows([7])).commit()
        assert bytes(first.payload) == b"1"
        assert reader.next().seq == 2


def test_two_renames_replace_an_exchange_that_the_filesystem_lacks(tmp, monkeypatch):
    Job(tmp).task(rows([1, 2])).commit()
    monkeypatch.setattr(publish, "exchange", lambda *_: False)
    Job(tmp, overwrite=True).task(rows([7])).commit()
    assert seqs_of(tmp / LOG) == [7]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_log_with_an_active_writer_is_refused_and_nothing_is_published(tmp, overwrite):
    Job(tmp).task(rows([1])).commit()
    job = Job(tmp, overwrite=overwrite).task(rows([2])).task(rows([1], symbol="AAA"))
    with (
        tw.open_publisher(tmp / LOG),
        pytest.raises(tw.WriterAlreadyActive, match=rf"pid={os.getpid()}"),
    ):
        job.commit()
    assert seqs_of(tmp / LOG) == [1]
    assert not (tmp / LOG.replace("BTC-USDT", "AAA")).exists()
    assert job.commit(), "it can be done again when the writer is gone"


def test_a_directory_that_is_not_a_log_is_named(tmp):
    (tmp / LOG).mkdir(parents=True)
    (tmp / LOG / "notes.txt").touch()
    with pytest.raises(tw.NotALog, match="not empty and not a log"):
        Job(tmp).task(rows([1])).commit()


def test_a_payload_that_fits_no_segment_of_the_existing_log_is_refused(tmp):
    Job(tmp, segment_bytes="8192").task(rows([1])).commit()
    job = Job(tmp).task(rows([2], payload=bytes(9000)))
    with pytest.raises(tw.PayloadTooLarge, match="payload=9000 bytes, largest=8064, seq=2"):
        job.commit()


def test_sequence_numbers_past_the_range_of_a_column_are_refused(tmp):
    Job(tmp).task(rows([2**63 - 1], times=[DAY_NS])).commit()
    with pytest.raises(tw.InvalidOption, match="has no more sequence numbers"):
        Job(tmp, seq=False).task(rows([1], seq=False)).commit()
    assert seqs_of(tmp / LOG) == [2**63 - 1]


def test_a_log_is_refused_as_an_archive(tmp):
    tw.open_publisher(tmp / "md").close()
    with pytest.raises(tw.InvalidOption, match="this is a log, not an archive"):
        Archive(tmp / "md").check_place()
    assert not (tmp / "md" / "_tapewire").exists()


def test_a_file_is_refused_as_an_archive(tmp):
    (tmp / "table.csv").touch()
    with pytest.raises(tw.NotALog, match="a file, not an archive"):
        Archive(tmp / "table.csv").check_place()
    with pytest.raises(tw.StorageError, match="cannot create the directory"):
        Archive(tmp / "table.csv" / "archive").check_place()


def test_a_link_out_of_the_archive_is_refused(tmp):
    (tmp / "elsewhere").mkdir()
    archive = tmp / "archive"
    (archive / "v1").mkdir(parents=True)
    (archive / "v1" / "okx").symlink_to(tmp / "elsewhere")
    with pytest.raises(tw.InvalidName, match="leads out"):
        Job(archive).task(rows([1])).commit()
    assert list((tmp / "elsewhere").iterdir()) == []


def test_a_repeated_batch_is_not_written_again(tmp):
    assert Job(tmp, batch=3).task(rows([1, 2])).commit()
    again = Job(tmp, batch=3).task(rows([2])).task(rows([1]))
    assert not again.commit()
    assert seqs_of(tmp / LOG) == [1, 2]
    assert staging_of(tmp) == []


@pytest.mark.parametrize("batch", [3, 2])
def test_a_batch_with_the_same_number_and_other_rows_is_refused_with_the_remedy(tmp, batch):
    Job(tmp, batch=3).task(rows([1, 2])).commit()
    with pytest.raises(tw.BatchConflict, match=rf"batch={batch} .*needs a name of its own"):
        Job(tmp, batch=batch).task(rows([5])).commit()
    assert seqs_of(tmp / LOG) == [1, 2]


def test_old_manifests_are_removed_and_their_batches_still_known(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.archive.transaction.manifest.KEPT", 2)
    for batch in range(4):
        Job(tmp, batch=batch).task(rows([batch])).commit()
    kept = sorted(os.listdir(tmp / "_tapewire" / "batches" / "w"))
    assert kept == ["2.json", "3.json"]
    with pytest.raises(tw.BatchConflict, match="newest=3"):
        Job(tmp, batch=0).task(rows([0])).commit()


def test_a_batch_without_rows_leaves_nothing(tmp):
    assert Job(tmp, batch=0).task().commit()
    assert not (tmp / "v1").exists()
    assert staging_of(tmp) == []


# Killed: at every step, then finished by the next process.


def before(monkeypatch, owner, name, times=0):
    """The process ends when `owner.name` has been called so many times and is called again."""
    complete = getattr(owner, name)
    left = [times]

    def ends(*args, **kwargs):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return complete(*args, **kwargs)

    monkeypatch.setattr(owner, name, ends)


def killed(job):
    with pytest.raises(Killed):
        job.commit()


@pytest.fixture
def two_logs(tmp):
    """A batch for one log that exists and two that do not."""
    Job(tmp, batch=1).task(rows([1, 2])).commit()

    def batch(number=2, **options):
        job = Job(tmp, batch=number, **options)
        job.task(rows(range(3, 30))).task(rows(range(30, 50)))
        return job.task(rows([1, 2], symbol="ETH-USDT")).task(rows([1], symbol="XRP-USDT"))

    return batch


def finished(tmp):
    return (
        seqs_of(tmp / LOG) == list(range(1, 50))
        and seqs_of(tmp / OTHER) == [1, 2]
        and seqs_of(tmp / OTHER.replace("ETH", "XRP")) == [1]
    )


def test_killed_before_the_decision_nothing_was_written(tmp, two_logs, monkeypatch):
    with monkeypatch.context() as patch:
        before(patch, publish.Manifests, "decide")
        killed(two_logs())
    Archive(tmp).recover()
    assert seqs_of(tmp / LOG) == [1, 2]
    assert not (tmp / OTHER).exists()
    assert two_logs().commit()
    assert finished(tmp)


@pytest.mark.parametrize(
    ("owner", "name", "times"),
    [
        (publish.Archive, "_append", 0),
        (publish, "_append_staged", 0),
        (publish, "_append_staged", 1),
        (publish, "_create", 0),
        (publish, "_create", 1),
        (publish.Manifests, "published", 0),
        (sink_jobs.Jobs, "remove", 0),
    ],
)
def test_killed_after_the_decision_the_next_one_finishes_it(
    tmp, two_logs, monkeypatch, owner, name, times
):
    monkeypatch.setattr(publish, "batches", small_batches(publish.batches))
    with monkeypatch.context() as patch:
        before(patch, owner, name, times)
        killed(two_logs())
    Archive(tmp).recover()
    assert finished(tmp)
    assert not two_logs().commit(), "Spark does not know that it was done"
    assert finished(tmp)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_killed_while_appending_rows_without_sequence_numbers_the_next_one_continues(
    tmp, monkeypatch, times
):
    monkeypatch.setattr(publish, "batches", small_batches(publish.batches))
    Job(tmp, seq=False).task(rows([0, 1], seq=False)).commit()
    with monkeypatch.context() as patch:
        before(patch, publish, "_append_staged", times)
        killed(Job(tmp, seq=False).task(rows(range(2, 50), seq=False)))
    Archive(tmp).recover()
    assert [(e.seq, e.payload) for e in stored(tmp / LOG)] == [(n, b"%d" % n) for n in range(50)]


def small_batches(complete):
    def batches(reader):
        for columns in complete(reader):
            for at in range(0, len(columns), 20):
                yield columns.part(at, min(at + 20, len(columns)))

    return batches


@pytest.mark.parametrize(
    ("owner", "name"),
    [(publish, "_replace"), (publish, "_exchange"), (publish.Manifests, "published")],
)
def test_killed_while_replacing_the_log_is_the_old_or_the_new_one(tmp, monkeypatch, owner, name):
    Job(tmp).task(rows([1, 2])).commit()
    with monkeypatch.context() as patch:
        before(patch, owner, name)
        killed(Job(tmp, overwrite=True).task(rows([7])))
    assert seqs_of(tmp / LOG) in ([1, 2], [7])
    for _ in range(2):
        Archive(tmp).recover()
        assert seqs_of(tmp / LOG) == [7]


def test_killed_between_the_two_renames_the_new_log_is_moved_into_place(tmp, monkeypatch):
    Job(tmp).task(rows([1, 2])).commit()

    def half(new, old, aside):
        os.rename(old, aside)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(publish, "_exchange", half)
        killed(Job(tmp, overwrite=True).task(rows([7])))
    Archive(tmp).recover()
    assert seqs_of(tmp / LOG) == [7]


@pytest.mark.parametrize("seq", [True, False])
def test_an_append_torn_by_a_power_cut_is_completed(tmp, monkeypatch, seq):
    Job(tmp, seq=seq).task(rows([0, 1], seq=seq)).commit()
    with monkeypatch.context() as patch:
        before(patch, publish.Manifests, "published")
        killed(Job(tmp, seq=seq).task(rows(range(2, 50), seq=seq)))
    # A page in the middle of what was appended and not synced did not reach the disk.
    segment = tmp / LOG / "000000000.q"
    data = bytearray(segment.read_bytes())
    data[64 + 128 * 10 : 64 + 128 * 12] = bytes(256)
    segment.write_bytes(data)
    (tmp / LOG / "index.meta").unlink()
    (tmp / LOG / "000000000.idx").unlink()
    Archive(tmp).recover()
    assert [(e.seq, e.payload) for e in stored(tmp / LOG)] == [(n, b"%d" % n) for n in range(50)]
    Archive(tmp).recover()
    assert len(stored(tmp / LOG)) == 50


@pytest.mark.parametrize("seq", [True, False])
def test_records_of_another_process_after_a_decided_batch_are_kept(tmp, monkeypatch, seq):
    Job(tmp, seq=seq).task(rows([0, 1], seq=seq)).commit()
    with monkeypatch.context() as patch:
        before(patch, publish.Archive, "_append")
        killed(Job(tmp, seq=seq).task(rows([2, 3], seq=seq)))
    with tw.open_publisher(tmp / LOG) as writer:
        writer.append(1, b"theirs")
    with pytest.raises(tw.CorruptMetadata, match=r"another process wrote to the log.*seq=2"):
        Archive(tmp).recover()
    assert [e.payload for e in stored(tmp / LOG)] == [b"0", b"1", b"theirs"]


def test_verify_reports_an_incomplete_batch(tmp, two_logs, monkeypatch):
    with monkeypatch.context() as patch:
        before(patch, publish.Manifests, "published")
        killed(two_logs())
    (problem,) = archive.verify(tmp).problems
    assert "incomplete batch" in problem
    Archive(tmp).recover()
    assert archive.verify(tmp).problems == []


def test_an_abort_by_spark_does_not_remove_a_decided_batch(tmp, two_logs, monkeypatch):
    job = two_logs()
    with monkeypatch.context() as patch:
        before(patch, publish, "_create")
        killed(job)
    Archive(tmp).abort(job.job)
    Archive(tmp).recover()
    assert finished(tmp)


def test_an_error_after_the_decision_advises_not_to_write_the_batch_again(tmp, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    job = Job(tmp).task(rows([1]))
    with monkeypatch.context() as patch:
        patch.setattr(publish, "_create", full)
        with pytest.raises(OSError, match="No space") as caught:
            job.commit()
    assert "do not write it again" in caught.value.__notes__[0]
    Archive(tmp).recover()
    assert seqs_of(tmp / LOG) == [1]


def test_an_exchange_is_durable_before_its_token_is_removed(tmp, monkeypatch):
    """Else the batch would count as published after a power cut that lost only the exchange."""
    Job(tmp).task(rows([1, 2])).commit()
    synced = []

    def noted(directory, sync=publish.sync):
        held = (tmp / LOG / publish._TOKEN).exists()
        synced.append((os.path.relpath(directory, tmp).split("/")[0], held))
        sync(directory)

    monkeypatch.setattr(publish, "sync", noted)
    Job(tmp, overwrite=True).task(rows([7])).commit()
    assert ("v1", True) in synced
    assert ("_tapewire", True) in synced


def test_an_aborted_job_leaves_nothing(tmp):
    job = Job(tmp).task(rows([1]))
    Archive(tmp).abort(job.job)
    assert staging_of(tmp) == []


# Other jobs on the same archive.


def test_jobs_of_dead_drivers_are_removed_and_those_of_live_ones_are_not(tmp):
    dead, living = Job(tmp).task(rows([1])), Job(tmp).task(rows([1], symbol="ETH-USDT"))
    of_dead = dead.directory / "job.json"
    document = json.loads(of_dead.read_text())
    of_dead.write_text(json.dumps(document | {"start_time_ticks": 1}))
    Job(tmp).task(rows([2])).commit()
    assert staging_of(tmp) == [living.job]
    assert living.commit()


def test_what_a_late_task_wrote_after_its_job_is_removed_by_the_next(tmp):
    over = Job(tmp)
    with over.staging("task-0", 0) as late:
        over.archive.abort(over.job)
        late.add(rows([1]))
        late.finish()  # creates its directories again
        assert staging_of(tmp) == [over.job]
    Job(tmp).task(rows([2])).commit()
    assert staging_of(tmp) == []


def test_a_job_of_another_host_is_kept_until_it_has_been_idle_for_long(tmp):
    job = Job(tmp).task(rows([1]))
    path = job.directory / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "elsewhere"}))
    Archive(tmp).recover()
    assert staging_of(tmp) == [job.job]
    for directory in (
        job.directory,
        *(entry for entry in job.directory.iterdir() if entry.is_dir()),
    ):
        os.utime(directory, (1, 1))
    Archive(tmp).recover()
    assert staging_of(tmp) == []


def test_earlier_batches_of_the_same_query_are_removed(tmp):
    Job(tmp, batch=1).task(rows([1]))  # its commit never came
    Job(tmp, batch=2).task(rows([2])).commit()
    assert staging_of(tmp) == []


def test_batch_writes_of_one_name_run_side_by_side(tmp):
    def writer(batch):
        schema = StructType().add("seq", "long").add("timestamp_ns", "long")
        schema = schema.add("type_id", "integer").add("payload", "binary")
        keys = {"venue": "v", "symbol": str(batch), "stream": "book"}
        options = {"path": str(tmp), "writer": "days", "batch": str(batch), **keys}
        return BatchWriter(options, schema, False)

    one, two = writer(1), writer(2)
    for each in (one, two):
        each.commit([each.write(iter([rows([1])]))])
    assert sorted(os.listdir(tmp / "v1" / "v")) == ["1", "2"]


def test_a_commit_that_waits_too_long_names_the_other_one(tmp, monkeypatch):
    monkeypatch.setattr(sink_jobs, "LOCK_SECONDS", 0.05)
    job = Job(tmp).task(rows([1]))
    with (
        sink_jobs.commit_lock(tmp / "_tapewire", "job-of-mine"),
        pytest.raises(tw.ConcurrentUse, match=rf"pid={os.getpid()} job=job-of-mine"),
    ):
        job.commit()
    assert job.commit()


def test_two_jobs_write_to_one_archive(tmp):
    one, two = Job(tmp).task(rows([1])), Job(tmp).task(rows([2]))
    assert one.commit()
    assert two.commit()
    assert seqs_of(tmp / LOG) == [1, 2]


def test_a_task_of_a_job_that_has_ended_writes_nothing(tmp):
    job = Job(tmp).task(rows([1]))
    job.commit()
    with pytest.raises(tw.InvalidOption, match="or the job has ended"):
        job.task(rows([2]))
    assert staging_of(tmp) == []


def test_files_are_private(tmp):
    Job(tmp, batch=1).task(rows([1])).commit()
    for directory, _, names in os.walk(tmp):
        if directory != str(tmp):
            assert os.stat(directory).st_mode & 0o077 == 0, directory
        for name in names:
            assert os.stat(os.path.join(directory, name)).st_mode & 0o077 == 0, name


def test_layouts_of_messages_are_published_with_their_records(tmp):
    tick = MessageLayout.natural("Tick", 7, 1, [("price", fields.i64)])
    for seq in (1, 2):
        job = Job(tmp).task(rows([seq], payload=bytes(8)))
        types_file.merge(job.directory / job.tasks[0][0][0].directory, [tick])
        job.commit()
    assert types_file.read(tmp / LOG) == [tick]
