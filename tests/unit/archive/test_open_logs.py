"""OpenLogs: few logs are open, and none is closed before it is durable."""

import contextlib

import pytest

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.open_logs import OpenLogs
from tests.unit.archive.test_log_writer import SPARSE, records, seqs_of


@pytest.fixture(params=[1, 4], ids=["one thread", "threads"])
def logs(tmp, request):
    opened = OpenLogs(2, sync_threads=request.param)

    def get(name):
        return opened.get(name, lambda: LogWriter(tmp / name, SPARSE))

    opened.named = get
    yield opened
    opened.close()


@contextlib.contextmanager
def failing_sync(*broken):
    """Syncs of these logs fail."""
    sync = LogWriter.sync

    def fails(log):
        if log in broken:
            raise OSError(5, "no")
        sync(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogWriter, "sync", fails)
        yield


def two_dirty(logs):
    dirty = [logs.named(name) for name in "ab"]
    for log in dirty:
        log.append(records([0]))
    return dirty


def alive(path):
    return tw.queue.status(path).writer.alive


def test_the_least_recently_used_log_is_closed_for_another(tmp, logs):
    for name in ("a", "b", "a", "c"):
        logs.named(name).append(records([logs.named(name).end_seq]))
    assert [alive(tmp / name) for name in "abc"] == [True, False, True]
    assert len(logs) == 2


def test_a_log_that_was_closed_for_another_is_opened_again(tmp, logs):
    for seq in range(3):
        for name in ("a", "b", "c"):
            logs.named(name).append(records([seq]))
    logs.close()
    assert [seqs_of(tmp / name) for name in "abc"] == [[0, 1, 2]] * 3


WAYS = {
    "evicted": lambda logs: logs.named("c"),
    "idle": lambda logs: logs.close_idle(-1),
    "closed by key": lambda logs: logs.close_logs(["a", "b"]),
}


@pytest.mark.parametrize("close", WAYS.values(), ids=WAYS)
def test_a_log_whose_sync_fails_stays_open_and_dirty(tmp, logs, close):
    log, _ = two_dirty(logs)
    with failing_sync(log):
        for attempt in (close, OpenLogs.sync):
            with pytest.raises(OSError, match="no"):
                attempt(logs)
            assert log.dirty
            assert alive(tmp / "a")
    assert logs.named("a") is log
    logs.sync()
    assert not log.dirty


def test_a_failing_sync_does_not_prevent_those_of_other_logs(logs):
    first, second = two_dirty(logs)
    with failing_sync(first), pytest.raises(OSError, match="no"):
        logs.sync()
    assert (first.dirty, second.dirty) == (True, False)


def test_close_closes_every_log_even_if_syncs_fail(tmp, logs):
    with failing_sync(*two_dirty(logs)), pytest.raises(OSError, match="no"):
        logs.close()
    assert [alive(tmp / name) for name in "ab"] == [False, False]
    assert len(logs) == 0


def test_idle_logs_alone_are_closed(tmp, logs):
    logs.named("a")
    logs.close_idle(60.0)
    assert len(logs) == 1
    logs.close_idle(-1.0)
    assert len(logs) == 0
    assert not alive(tmp / "a")
