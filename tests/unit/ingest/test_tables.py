"""Text tables are parsed to integers: exactly, with bad rows by line, whatever the bytes."""

import io
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire.errors import CorruptSource
from tapewire.ingest._parsers import FAULTS, MISSING, SKIP, ItchDecoder, RowParser, decimal
from tapewire.ingest.source import SourceFile
from tapewire.ingest.tables import TableColumn, csv_blocks, pair_blocks


class Kept:
    """A report that stores its bad rows."""

    def __init__(self):
        self.rows = 0
        self.kept = []

    def bad(self, file, line, text, why, detail="", *, symbol=None, of_book=True):
        self.kept.append((line, bytes(text), why, detail))


def table(tmp, text, columns, reader=csv_blocks):
    path = tmp / "table.csv"
    path.write_bytes(text)
    report = Kept()
    blocks = list(reader(SourceFile(path), columns, report))
    rows = [tuple(row[3:]) for block in blocks for row in block.rows.tolist()]
    return rows, report


@pytest.mark.parametrize(
    ("text", "scale", "want"),
    [
        (b"20.58", 4, 205_800),
        (b"-0.5", 1, -5),
        (b"1e-7", 8, 10),
        (b"0.10", 1, 1),
        (b"92233720368.54775807", 8, 2**63 - 1),
        (b"92233720368.54775808", 8, "out_of_range"),
        (b"-9223372036854775807", 0, -(2**63) + 1),
        (b"-9223372036854775808", 0, "out_of_range"),  # stands for what is missing
        (b"0.015", 2, "too_precise"),
        (b"20.579999999999998", 4, "too_precise"),
        (b"", 2, "not_a_number"),
        (b"1,5", 2, "not_a_number"),
        (b"nan", 2, "not_a_number"),
        (b"0x10", 2, "not_a_number"),
    ],
)
def test_a_decimal_is_exact_or_refused(text, scale, want):
    assert decimal(text, scale) == want


@pytest.mark.parametrize(
    ("text", "scale", "want"),
    [
        (b"20.579999999999998", 4, 205_800),
        (b"20.600000000000001", 4, 206_000),
        (b"5.480000000000002", 3, 5_480),
        (b"63204.669999999998253", 3, 63_204_670),  # twenty digits
        (b"-20.579999999999998", 2, -2_058),
        (b"20.5799999", 4, "too_precise"),  # further away than a float's error
        (b"0.0000000000000001", 4, "too_precise"),  # all of it would be lost
        (b"1500000000.5", 0, 1_500_000_000),  # half, to even
        (b"1500000001.5", 0, 1_500_000_002),
    ],
)
def test_a_printed_float_is_rounded_to_what_it_was(text, scale, want):
    assert decimal(text, scale, True) == want


@given(st.floats(1e-6, 1e9).map(lambda x: round(x, 4)), st.sampled_from(["%.17g", "%.15f", "%r"]))
def test_every_price_comes_back_from_its_printed_float(price, form):
    want = int(Decimal(repr(price)).scaleb(4).quantize(Decimal(1), ROUND_HALF_EVEN))
    got = decimal((form % price).encode(), 4, True)
    assert got == want or (want < 10 and got == "too_precise")


def test_columns_are_found_by_name_and_others_skipped(tmp):
    rows, report = table(
        tmp,
        b"z,price,side\r\nq,1.5,ask\r\n,2,bid\r\n",
        [TableColumn("side", "word", words=("bid", "ask")), TableColumn("price", scale=1)],
    )
    assert rows == [(1, 15), (0, 20)]
    assert report.rows == 2


def test_missing_columns_are_named(tmp):
    with pytest.raises(CorruptSource, match="missing=price, amount"):
        table(tmp, b"a,b\n1,2\n", [TableColumn("price"), TableColumn("a"), TableColumn("amount")])


def test_a_duplicate_column_is_refused(tmp):
    with pytest.raises(CorruptSource, match="duplicate columns: a"):
        table(tmp, b"a,a\n1,2\n", [TableColumn("a")])


def test_a_file_without_a_header_is_refused(tmp):
    with pytest.raises(CorruptSource, match="no column names"):
        table(tmp, b"\xff\xfe\x00\n", [TableColumn("a")])


def test_bad_rows_are_reported_with_their_line(tmp):
    rows, report = table(
        tmp,
        b"a,b\n1,2\n\nx,2\n1\n1,2,3\n,2\n3,4",
        [TableColumn("a"), TableColumn("b", optional=True)],
    )
    assert rows == [(1, 2), (3, 4)]
    assert [(line, text) for line, text, _, _ in report.kept] == [
        (4, b"x,2"),
        (5, b"1"),
        (6, b"1,2,3"),
        (7, b",2"),
    ]
    assert report.kept[0][2:] == ("not a number", "a")
    assert report.rows == 6


def test_times_become_nanoseconds(tmp):
    rows, report = table(
        tmp,
        b"c,d,t\n09:30:00.030,2023.07.11,2023.07.11T00:00:00.5\n24:00:00,2023.07.11,\n"
        b"09:30:00,2023.02.30,\n",
        [
            TableColumn("c", "clock"),
            TableColumn("d", "date"),
            TableColumn("t", "datetime", optional=True),
        ],
    )
    day = 19_549
    assert rows == [(34_200_030_000_000, day, day * 86_400 * 10**9 + 500_000_000)]
    assert [kept[2:] for kept in report.kept] == [("not a time", "c"), ("not a time", "d")]


def test_ids_that_are_not_integers_are_hashed(tmp):
    from tapewire.protocol.market import symbol_hash

    rows, _ = table(tmp, b"id\n18446744073709551615\nv:s\n", [TableColumn("id", "id")])
    assert [row[0] % 2**64 for row in rows] == [2**64 - 1, symbol_hash("v", "s")]


def test_lines_of_pairs_have_their_keys_in_any_order(tmp):
    rows, report = table(
        tmp,
        b"//a=1  z=9 b=2 \r\nb=3\r\na\r\na=1 a=2\n",
        [TableColumn("a"), TableColumn("b")],
        pair_blocks,
    )
    assert rows == [(1, 2), (MISSING, 3)]
    assert [(line, why) for line, _, why, _ in report.kept] == [
        (3, "not key=value"),
        (4, "duplicate key"),
    ]


def test_a_damaged_file_is_read_up_to_the_damage(tmp):
    import gzip

    path = tmp / "cut.gz"
    complete = gzip.compress(b"a\n" + b"".join(b"%d\n" % i for i in range(200_000)))
    path.write_bytes(complete[: len(complete) // 2])
    report = Kept()
    with pytest.raises(CorruptSource, match="truncated"):
        list(csv_blocks(SourceFile(path), [TableColumn("a")], report))
    assert report.rows > 10_000
    assert not report.kept, "the line that the damage cuts is no row"


COLUMNS = [
    ("decimal", 8, False, ()),
    ("rounded", 2, True, ()),
    ("word", 0, True, ("bid", "ask")),
    ("text", 0, True, ()),
    ("id", 0, False, ()),
    ("clock", 0, True, ()),
    ("date", 0, True, ()),
    ("datetime", 0, True, ()),
]
FIELDS = st.sampled_from(
    [b"1", b"-2.5", b"bid", b"09:30:00.1", b"2023.07.11", b"2023.07.11T09:30:00", b"", b'"', b"1e9"]
)
LINES = st.lists(FIELDS | st.binary(max_size=12), min_size=7, max_size=9).map(b",".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES | st.binary(max_size=40), max_size=8).map(b"\n".join), st.booleans())
def test_arbitrary_bytes_never_crash_and_every_line_is_reported_once(data, pairs):
    parser = RowParser(COLUMNS)
    parser.set_fields([*range(8), SKIP])
    parser.set_keys(list("abcdefgh"))
    used, rows, bad = parser.parse(data, True, pairs)
    assert used == len(data)
    lines = [line.rstrip(b"\r") for line in io.BytesIO(data).read().split(b"\n")]
    reported = sorted([*rows[:, 0].tolist(), *(row[0] for row in bad)])
    empty = [i for i, line in enumerate(lines, 1) if not line]
    assert [n for n in range(1, len(lines) + 1) if n not in reported] == [
        n for n in empty if n not in reported
    ]
    assert len(reported) == len(set(reported))
    assert all(fault in FAULTS for *_, fault in bad)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_are_messages_bad_messages_or_refused(data, by_type):
    from tapewire.errors import CorruptRecord

    decoder = ItchDecoder(by_type)
    at = 0
    while at < len(data):
        try:
            used, events, bad = decoder.decode(data[at:], True)
        except CorruptRecord:
            return
        assert used > 0
        assert len(events) == 0 or decoder.messages > 0
        assert all(offset + length <= len(data) - at for _, offset, length, _ in bad)
        at += used
