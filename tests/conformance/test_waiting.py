"""wait and follow."""

import threading

import pytest

from tests.conformance.kinds import needs
from tests.support.entries import entries, entry


@needs("wait")
def test_wait_is_true_at_once_when_there_is_something(log, read):
    log.fill(1)
    assert read().wait()


@needs("wait")
def test_wait_consumes_nothing(log, read):
    log.fill(2)
    reader = read()
    assert reader.wait(1)
    assert reader.wait(1)
    assert entries(reader) == log.model


@needs("wait")
@pytest.mark.parametrize("timeout", [0, 0.0, 0.001])
def test_wait_is_false_after_its_timeout(log, read, timeout):
    assert read().wait(timeout) is False


@needs("wait")
@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_wait_refuses_an_invalid_timeout(log, read, timeout):
    with pytest.raises(ValueError, match="timeout"):
        read().wait(timeout)


@needs("wait", "live")
def test_wait_ends_when_a_record_is_appended(log, read):
    reader = read()
    timer = threading.Timer(0.02, log.fill, [1])
    timer.start()
    assert reader.wait(30)
    timer.join()
    assert entries(reader) == log.model


@needs("wait", "live")
def test_wait_releases_the_interpreter(log, read):
    # The appending thread can only run while wait() does not hold the interpreter.
    reader = read()
    for _ in range(20):
        thread = threading.Thread(target=log.fill, args=[1])
        thread.start()
        assert reader.wait(30)
        thread.join()
        assert entry(reader.next()) == log.model[-1]


@needs("wait")
def test_follow_yields_existing_records_and_ends_after_its_timeout(log, read):
    log.fill(300)
    assert entries(read().follow(timeout=0)) == log.model


@needs("wait", "live")
def test_follow_continues_with_later_records(log, read):
    log.fill(2)
    got = []
    for record in read().follow(timeout=0.05):
        got.append(entry(record))
        if len(got) in (2, 5, 200):
            log.fill(100)  # while the loop is at the end of the log
    assert got == log.model
    assert len(got) >= 302


@needs("wait")
def test_follow_of_an_empty_log_ends_after_its_timeout(log, read):
    assert list(read().follow(timeout=0.01)) == []


@needs("wait", "live")
def test_follow_without_timeout_waits_until_the_reader_is_closed(log, read):
    log.fill(3)
    reader = read()
    got = []
    all_seen = threading.Event()

    def follow():
        for record in reader.follow():
            got.append(entry(record))
            if len(got) == 3:
                all_seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert all_seen.wait(30)
    reader.close()
    thread.join(30)
    assert not thread.is_alive()
    assert got == log.model
