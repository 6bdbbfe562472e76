"""Limits of micro-batches: never more than asked for, and never nothing."""

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
from tapewire.spark.streaming.limits import Ahead, Limit, cut


def dense(name, count, first=0):
    return Ahead(name, "", first, first + count, True)


def queue(path, sizes, seqs=None):
    with tw.open_publisher(path, segment_bytes=65536, sparse=seqs is not None) as writer:
        for place, size in enumerate(sizes):
            writer.append(1, bytes(size), seq=None if seqs is None else seqs[place])
    end = (seqs[-1] if seqs else len(sizes) - 1) + 1
    return Ahead(path.name, str(path), 0, end, seqs is None)


def test_spark_decides_and_options_add_to_it():
    assert Limit.of(ReadAllAvailable(), 5, 6) == Limit(None, None)
    assert Limit.of(ReadMaxRows(7), 7, 6) == Limit(7, 6)
    assert Limit.of(ReadMaxBytes(8), None, 8) == Limit(None, 8)
    assert Limit.of(ReadMinRows(9), 20, None) == Limit(20, None, 9)
    with pytest.raises(InvalidOption, match="ReadMaxFiles"):
        Limit.of(ReadMaxFiles(1), None, None)


def test_without_a_limit_all_is_taken():
    assert cut([dense("a", 5, 10), dense("b", 0)], Limit()) == {"a": 15}


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 59, 60, 61, 1000])
def test_rows_are_shared_out_and_never_more_than_allowed(rows):
    logs = [dense("a", 10), dense("b", 50, 100), dense("c", 0)]
    ends = cut(logs, Limit(rows))
    taken = sum(end - {"a": 0, "b": 100}[name] for name, end in ends.items())
    assert taken == min(rows, 60)


def test_what_a_small_log_does_not_need_goes_to_the_others():
    assert cut([dense("a", 1000), dense("b", 2)], Limit(100)) == {"a": 98, "b": 2}


def test_rows_of_a_sparse_log_are_counted_not_subtracted(tmp):
    log = queue(tmp / "q", [10] * 5, [3, 100, 101, 5000, 9000])
    assert cut([log], Limit(3)) == {"q": 102}
    assert cut([log], Limit(5)) == {"q": 9001}
    assert cut([log], Limit(50)) == {"q": 9001}


def test_bytes_are_those_of_the_log(tmp):
    log = queue(tmp / "q", [36] * 10)  # 100 bytes each
    assert cut([log], Limit(None, 350)) == {"q": 3}
    assert cut([log], Limit(2, 350)) == {"q": 2}
    assert cut([log], Limit(None, 10_000)) == {"q": 10}


def test_a_record_larger_than_the_limit_comes_all_the_same(tmp):
    log = queue(tmp / "q", [5000, 10, 10])
    assert cut([log], Limit(None, 100)) == {"q": 1}


def test_what_was_appended_since_is_not_taken(tmp):
    log = queue(tmp / "q", [36] * 10)
    seen = Ahead(log.name, log.path, 0, 4, True)
    assert cut([seen], Limit(None, 10_000)) == {"q": 4}
    assert cut([seen], Limit(None, 250)) == {"q": 2}


def test_a_micro_batch_that_is_to_have_so_many_waits_for_them():
    assert cut([dense("a", 5), dense("b", 4)], Limit(least=10)) == {}
    assert cut([dense("a", 5), dense("b", 5)], Limit(least=10)) == {"a": 5, "b": 5}


@pytest.mark.parametrize("limit", [Limit(1), Limit(3), Limit(None, 150), Limit(None, 1)])
def test_batch_by_batch_every_record_comes_once_whatever_is_damaged(tmp, limit):
    log = queue(tmp / "q", [36] * 40, list(range(0, 80, 2)))
    segment = tmp / "q" / "000000000.q"
    content = bytearray(segment.read_bytes())
    content[20 * 128 : 20 * 128 + 40] = b"\xff" * 40
    segment.write_bytes(content)
    places = [0]
    while places[-1] < log.end:
        ahead = Ahead(log.name, log.path, places[-1], log.end, False)
        (end,) = cut([ahead], limit).values()
        assert end > places[-1]
        places.append(end)
    assert places[-1] == log.end
