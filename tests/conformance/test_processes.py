"""One process appends while others read, through many rolls."""

import pytest

from tests.conformance.kinds import needs
from tests.support.entries import entry
from tests.support.processes import Child

COUNT = 20_000

APPENDER = """
import sys
from tests.conformance.kinds import by_name

with by_name(sys.argv[1]).create(sys.argv[2]) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    log.fill(int(sys.argv[3]))
print("closed", flush=True)
"""


def expected(number):
    return (number, 1 + number % 3, b"%d:" % number + bytes(number % 40))


def by_next(reader):
    yield from reader.follow(timeout=20)


def by_batch(reader):
    while reader.wait(20):
        yield from reader.read_batch(100)


def by_each(reader):
    while reader.wait(20):
        got = []
        reader.for_each(got.append, max_records=100)
        yield from got


@needs("live", "wait")
@pytest.mark.parametrize("how", [by_next, by_batch, by_each])
def test_a_reader_sees_every_record_of_another_process_once_and_complete(kind, tmp, how):
    with Child(APPENDER, kind.name, tmp / "log", COUNT) as child:
        child.expect("ready")
        with kind.open_reader(tmp / "log") as reader:
            child.send()
            for number, record in enumerate(how(reader)):
                got = entry(record)
                assert (got.seq, got.type_id, got.payload) == expected(number)
                if number == COUNT - 1:
                    break
        child.expect("closed")


@needs("live", "wait", "seek_seq", "seek_time")
def test_seeks_are_correct_while_another_process_appends(kind, tmp):
    with Child(APPENDER, kind.name, tmp / "log", COUNT) as child:
        child.expect("ready")
        with kind.open_reader(tmp / "log") as reader:
            child.send()
            seen = 0
            while seen < COUNT - 1:
                reader.seek_end()
                assert reader.seek_seq(seen) or reader.wait(20)
                record = reader.next()
                assert record.seq == seen
                assert reader.seek_time(record.timestamp_ns)
                assert reader.next().seq == seen
                seen = reader.read_batch(COUNT).seq[-1:].max(initial=seen)
                seen = min(int(seen) + 1, COUNT - 1)
        child.expect("closed")
