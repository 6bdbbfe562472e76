"""Which rows are kept, whatever the batches."""

import pyarrow as pa
import pytest

from tapewire.refine.judge import (
    CONFLICT,
    DUPLICATE,
    KEPT,
    LATE,
    PRESENT,
    Judge,
    VenueJudge,
)

COLUMNS = ("log", "seq", "source", "timestamp_ns", "type_id", "flags", "payload", "native",
           "venue_ns", "kind", "late", "verdict")  # fmt: skip
SCHEMA = pa.schema(
    [
        *((name, pa.int32() if name in ("log", "source", "kind", "verdict") else pa.int64())
          for name in COLUMNS if name not in ("payload", "late")),
        ("payload", pa.binary()),
        ("late", pa.bool_()),
    ]
)  # fmt: skip


def row(log, seq, source=0, native=0, payload=b"x", venue_ns=5, kind=1, late=False, verdict=KEPT):
    return {
        **{"log": log, "seq": seq, "source": source, "timestamp_ns": seq, "type_id": 1, "flags": 0},
        **{"payload": payload, "native": native, "venue_ns": venue_ns, "kind": kind},
        **{"late": late, "verdict": verdict},
    }


def verdicts(judge, rows, size):
    table = pa.Table.from_pylist(rows, SCHEMA)
    batches = table.to_batches(max_chunksize=size)
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    return [v for batch in judge([empty, *batches]) for v in batch["verdict"].to_pylist()]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_repeated_sequence_number_is_kept_once(size):
    rows = [
        row(0, 5), row(0, 5, source=1),  # the same record
        row(0, 6, native=9, payload=b"a"), row(0, 6, source=1, native=9, payload=b"b"),
        row(0, 7, payload=b"a"), row(0, 7, source=1, payload=b"b"),
        row(0, 7, source=2, payload=b"b"),
        row(1, 7),  # another log
        row(1, 8, late=True),
    ]  # fmt: skip
    names = ["v/s/2024-01-01/book", "v/t/2024-01-01/book"]
    K, D, C = KEPT, DUPLICATE, CONFLICT
    assert verdicts(Judge(names, False), rows, size) == [K, D, K, D, K, C, D, K, K]
    assert verdicts(Judge(names, True), rows, size)[-1] == LATE


def test_records_that_a_clean_log_has_are_not_kept_again():
    rows = [row(0, 5), row(0, 6), row(0, 6, source=1), row(0, 7), row(1, 5), row(1, 6, late=True)]
    names = ["v/s/2024-01-01/book", "v/t/2024-01-01/book"]
    found = verdicts(Judge(names, True, [7, 0]), rows, 100)
    assert found == [PRESENT, PRESENT, DUPLICATE, KEPT, KEPT, LATE]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_duplicate_of_a_venue_event_does_not_take_the_sequence_number_of_a_third_log(size):
    rows = [
        row(0, 7, source=1, native=4, payload=b"b", verdict=DUPLICATE),
        row(0, 7, source=2, native=9, payload=b"c"),
        row(0, 7, source=3, native=9, payload=b"c"),
    ]
    judge = Judge(["v/s/2024-01-01/book"], False)
    assert verdicts(judge, rows, size) == [DUPLICATE, KEPT, DUPLICATE]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_an_event_of_a_venue_is_kept_from_one_raw_log(size):
    rows = [
        row(0, 5, native=0), row(0, 6, source=1, native=0),  # no venue number: not comparable
        row(0, 7, native=4), row(0, 8, native=4), row(0, 9, source=1, native=4),
        row(0, 3, native=4, venue_ns=6, source=1),  # the numbers of the venue restarted
        row(0, 4, native=5, source=1), row(0, 4, native=5, source=2),
        row(1, 4, native=5, source=2),
        row(1, 4, native=5, source=2, kind=2),
    ]  # fmt: skip
    K, D = KEPT, DUPLICATE
    assert verdicts(VenueJudge(), rows, size) == [K, K, K, K, D, K, K, D, K, K]


def test_each_row_has_the_names_of_its_clean_log():
    names = ["v/s/2024-01-01/book", "w/t/2024-01-01/trades"]
    table = pa.Table.from_pylist([row(0, 1), row(1, 2)], SCHEMA)
    (batch,) = Judge(names, False)(iter(table.to_batches()))
    found = [tuple(r[n] for n in ("venue", "symbol", "stream")) for r in batch.to_pylist()]
    assert found == [("v", "s", "book"), ("w", "t", "trades")]
