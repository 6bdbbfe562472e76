"""Limits of micro-batches: never exceeded, and always at least one record."""

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

import tapewire as tw
from tapewire.errors import InvalidOption
from tapewire.spark.streaming.batch_limits import BatchLimit, UnreadRange, batch_ends


def dense(name, count, first=0):
    return UnreadRange(name, "", first, first + count, True)


def queue(path, sizes, seqs=None):
    with tw.open_publisher(path, segment_bytes=65536, sparse=seqs is not None) as writer:
        for place, size in enumerate(sizes):
            writer.append(1, bytes(size), seq=None if seqs is None else seqs[place])
    end = (seqs[-1] if seqs else len(sizes) - 1) + 1
    return UnreadRange(path.name, str(path), 0, end, seqs is None)


def test_the_limit_of_spark_has_precedence_over_options():
    assert BatchLimit.of(ReadAllAvailable(), 5, 6) == BatchLimit(None, None)
    assert BatchLimit.of(ReadMaxRows(7), 7, 6) == BatchLimit(7, 6)
    assert BatchLimit.of(ReadMaxBytes(8), None, 8) == BatchLimit(None, 8)
    assert BatchLimit.of(ReadMinRows(9), 20, None) == BatchLimit(20, None, 9)
    with pytest.raises(InvalidOption, match="ReadMaxFiles"):
        BatchLimit.of(ReadMaxFiles(1), None, None)


def test_without_a_limit_everything_is_read():
    assert batch_ends([dense("a", 5, 10), dense("b", 0)], BatchLimit()) == {"a": 15}


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 59, 60, 61, 1000])
def test_rows_are_shared_among_logs_and_never_exceed_the_limit(rows):
    logs = [dense("a", 10), dense("b", 50, 100), dense("c", 0)]
    ends = batch_ends(logs, BatchLimit(rows))
    taken = sum(end - {"a": 0, "b": 100}[name] for name, end in ends.items())
    assert taken == min(rows, 60)


def test_what_a_small_log_does_not_need_is_given_to_the_others():
    assert batch_ends([dense("a", 1000), dense("b", 2)], BatchLimit(100)) == {"a": 98, "b": 2}


def test_records_of_a_sparse_log_are_counted_not_subtracted(tmp):
    log = queue(tmp / "q", [10] * 5, [3, 100, 101, 5000, 9000])
    assert batch_ends([log], BatchLimit(3)) == {"q": 102}
    assert batch_ends([log], BatchLimit(5)) == {"q": 9001}
    assert batch_ends([log], BatchLimit(50)) == {"q": 9001}


def test_bytes_include_headers(tmp):
    log = queue(tmp / "q", [36] * 10)  # 100 bytes each
    assert batch_ends([log], BatchLimit(None, 350)) == {"q": 3}
    assert batch_ends([log], BatchLimit(2, 350)) == {"q": 2}
    assert batch_ends([log], BatchLimit(None, 10_000)) == {"q": 10}


def test_a_record_larger_than_the_limit_is_read(tmp):
    log = queue(tmp / "q", [5000, 10, 10])
    assert batch_ends([log], BatchLimit(None, 100)) == {"q": 1}


def test_records_appended_since_are_not_read(tmp):
    log = queue(tmp / "q", [36] * 10)
    seen = UnreadRange(log.name, log.path, 0, 4, True)
    assert batch_ends([seen], BatchLimit(None, 10_000)) == {"q": 4}
    assert batch_ends([seen], BatchLimit(None, 250)) == {"q": 2}


def test_a_micro_batch_with_a_minimum_waits_for_its_records():
    assert batch_ends([dense("a", 5), dense("b", 4)], BatchLimit(least=10)) == {}
    assert batch_ends([dense("a", 5), dense("b", 5)], BatchLimit(least=10)) == {"a": 5, "b": 5}


@pytest.mark.parametrize(
    "limit", [BatchLimit(1), BatchLimit(3), BatchLimit(None, 150), BatchLimit(None, 1)]
)
def test_micro_batches_advance_past_damage_to_the_end(tmp, limit):
    log = queue(tmp / "q", [36] * 40, list(range(0, 80, 2)))
    segment = tmp / "q" / "000000000.q"
    content = bytearray(segment.read_bytes())
    content[20 * 128 : 20 * 128 + 40] = b"\xff" * 40
    segment.write_bytes(content)
    ends = [0]
    while ends[-1] < log.end:
        unread = UnreadRange(log.name, log.path, ends[-1], log.end, False)
        (end,) = batch_ends([unread], limit).values()
        assert end > ends[-1]
        ends.append(end)
    assert ends[-1] == log.end
