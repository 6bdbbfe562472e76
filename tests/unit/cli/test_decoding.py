"""Messages of the log's `types.json`: decoded by `tail`, written as columns by `export`."""

import csv
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire import protocol
from tapewire.cli.records import Messages
from tapewire.protocol import table
from tests.support.commands import tapewire


@tw.message(0x2F01)
class Fill:
    order_id: tw.u64
    price: tw.i64
    ratio: tw.f64
    live: tw.bool8
    venue: tw.char[8]
    key: tw.raw[4]
    levels: tw.i32[3]


protocol.forget(Fill)  # the commands must use types.json

FILLS = [
    Fill(2**64 - 1, -5, 0.5, True, "XNÄS", b"\x00\x01\xfe\xff", (1, -2, 3)),
    Fill(7, 2**62, float("nan"), False, 'a,b"c', b"abcd", (0, 0, 0)),
]
OBJECTS = [
    {
        "order_id": 2**64 - 1,
        "price": -5,
        "ratio": 0.5,
        "live": True,
        "venue": "XNÄS",
        "key": "0001feff",
        "levels": [1, -2, 3],
    },
    {
        "order_id": 7,
        "price": 2**62,
        "ratio": None,
        "live": False,
        "venue": 'a,b"c',
        "key": "61626364",
        "levels": [0, 0, 0],
    },
]


@pytest.fixture
def fills(tmp):
    """A log of two fills, and a record of another type between them."""
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append_message(FILLS[0])
        writer.append(0x3001, b"other")
        writer.append_message(FILLS[1])
    return tmp / "q"


def test_tail_shows_messages_as_json_fields(fills):
    first, other, second = tapewire("tail", fills, "--json").json
    assert [first["fields"], second["fields"]] == OBJECTS
    assert (first["type"], other["type"]) == ("Fill", None)
    assert "payload" not in first
    assert "payload" in other


def test_tail_shows_messages_as_text_on_one_line(fills):
    lines = tapewire("tail", fills, "-n", 3).out.splitlines()
    assert lines[2] == (
        '    Fill order_id=18446744073709551615 price=-5 ratio=0.5 live=true venue="XNÄS" '
        'key="0001feff" levels=[1, -2, 3]'
    )
    assert "|other|" in lines[4]


def test_a_header_without_a_message_ends_with_the_name(fills):
    lines = tapewire("tail", fills, "--headers").out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["Fill", "5", "Fill"]


def test_bytes_instead_of_messages(fills):
    assert "fields" not in tapewire("tail", fills, "--json", "--hex").json[0]
    assert "  ff ff ff ff" in tapewire("tail", fills, "--hex").out


def test_only_messages(fills):
    out = tapewire("tail", fills, "--decode").out
    assert "cannot decode" in out
    assert "|" not in out


def test_a_type_is_given_by_its_name(fills):
    assert [r["seq"] for r in tapewire("tail", fills, "--json", "--type", "Fill").json] == [0, 2]
    ran = tapewire("tail", fills, "--type", "Fil")
    assert ran.code == 2
    assert "market data: Fill" in ran.err


def test_grep_searches_the_decoded_text(fills):
    assert [r["seq"] for r in tapewire("tail", fills, "--json", "--grep", "venue=.XN").json] == [0]


def test_a_damaged_types_file_is_reported_and_bytes_are_shown(fills):
    (fills / "types.json").write_text('{"format": "tapewire-types", "version": 1, "types": [7]}')
    ran = tapewire("tail", fills, "--json")
    assert ran.code == 0
    assert ran.err.count("types.json") == 1
    assert all("payload" in record for record in ran.json)


def test_text_that_is_not_utf8_is_shown_as_bytes(fills):
    with tw.open_publisher(fills) as writer:
        writer.append(0x2F01, bytes(FILLS[0]).replace(b"XN", b"\xff\xfe"))
    assert "payload" in tapewire("tail", fills, "--json", "-n", 1).json[0]


def test_a_follower_decodes_types_that_are_declared_later(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        protocol.declare(writer, OldQuote)
        writer.append(0x3001, b"first")
        command = [sys.executable, "-m", "tapewire.cli", "tail", tmp / "q", "--json", "-f"]
        with subprocess.Popen(
            [*command, "--from-seq", "0", "-n", "2"], stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            writer.append_message(FILLS[0])
            assert b'"venue":"XN\xc3\x84S"' in process.stdout.readline()


COLUMNS = ["seq", "timestamp_ns", "flags", *Fill.dtype.names]


@pytest.mark.parametrize("name", ["all.parquet", "all.arrow"])
def test_fields_become_columns_of_parquet_and_arrow(fills, tmp, name):
    assert tapewire("export", fills, "--to", tmp / name, "--decode", "Fill").code == 0
    if name.endswith("parquet"):
        table = pq.read_table(tmp / name)
    else:
        with pa.ipc.open_file(tmp / name) as file:
            table = file.read_all()
    assert table.column_names == COLUMNS
    assert table["order_id"].type == pa.uint64()
    assert table["key"].type == pa.binary(4)
    rows = table.to_pylist()
    assert [row["seq"] for row in rows] == [0, 2]
    assert [row["venue"] for row in rows] == ["XNÄS", 'a,b"c']
    assert [row["key"] for row in rows] == [FILLS[0].key, FILLS[1].key]
    assert [row["levels"] for row in rows] == [[1, -2, 3], [0, 0, 0]]
    assert [row["live"] for row in rows] == [True, False]
    assert [row["order_id"] for row in rows] == [2**64 - 1, 7]
    assert rows[0]["ratio"] == 0.5
    assert np.isnan(rows[1]["ratio"])


@pytest.mark.parametrize("venue", ["a\rb", "a\nb", "a\r\nb", "\r"])
def test_text_with_a_line_end_stays_one_field_of_csv(tmp, venue):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append_message(protocol.replace(FILLS[0], venue=venue))
    assert tapewire("export", tmp / "q", "--to", tmp / "all.csv", "--decode", "0x2F01").code == 0
    with (tmp / "all.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["venue"] == venue


def test_fields_become_columns_of_csv(fills, tmp):
    assert tapewire("export", fills, "--to", tmp / "all.csv", "--decode", "0x2F01").code == 0
    with (tmp / "all.csv").open(newline="") as file:
        head, first, second = csv.reader(file)
    assert head == COLUMNS
    assert first[3:] == [str(2**64 - 1), "-5", "0.5", "true", "XNÄS", "0001feff", "[1, -2, 3]"]
    assert second[3:] == ["7", str(2**62), "nan", "false", 'a,b"c', "61626364", "[0, 0, 0]"]


def test_jsonl_of_a_message_is_what_tail_prints(fills, tmp):
    assert tapewire("export", fills, "--to", tmp / "all.jsonl", "--decode", "Fill").code == 0
    shown = tapewire("tail", fills, "--json", "--type", "Fill").out
    assert (tmp / "all.jsonl").read_text() == shown


@tw.message(0x2F02, version=1)
class OldQuote:
    bid: tw.i64


@tw.message(0x2F02, version=2)
class Quote:
    bid: tw.i64
    seq: tw.u32
    note: tw.char[12]


for message in (OldQuote, Quote):
    protocol.forget(message)


@pytest.fixture
def quotes(tmp):
    """Two versions of a message in turn; the newer one has a field `seq`."""
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        for n in range(4):
            writer.append_message(OldQuote(n))
            writer.append_message(Quote(n, 100 + n, "x"))
    return tmp / "q"


def test_fields_that_a_version_does_not_have_are_null(quotes, tmp):
    assert tapewire("export", quotes, "--to", tmp / "all.parquet", "--decode", "Quote").code == 0
    table = pq.read_table(tmp / "all.parquet")
    assert table.column_names == ["record_seq", "timestamp_ns", "flags", "bid", "seq", "note"]
    assert table["record_seq"].to_pylist() == list(range(8))
    assert table["bid"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["seq"].to_pylist() == [None, 100, None, 101, None, 102, None, 103]
    assert table.schema.field("bid").nullable is False


@pytest.mark.parametrize(
    "payload", [b"of no version", bytes(Quote(1, 2, "abc")).replace(b"abc", b"\xff\xfe\xfd")]
)
def test_a_record_that_is_not_the_message_is_damage(quotes, tmp, payload):
    with tw.open_publisher(quotes) as writer:
        writer.append(0x2F02, payload)
        writer.append_message(OldQuote(9))
    ran = tapewire("export", quotes, "--to", tmp / "all.csv", "--decode", "0x2F02")
    assert ran.code == 3
    assert "seq=8" in ran.err
    assert not (tmp / "all.csv").exists()
    ran = tapewire(
        "export", quotes, "--to", tmp / "all.csv", "--decode", "0x2F02", "--skip-damaged", "--json"
    )
    assert ran.code == 0
    (summary,) = ran.json
    assert (summary["records"], len(summary["damaged"])) == (9, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decode", "Nobody"], "market data: Fill"),
        (["--decode", "0x3001"], "types.json"),
        (["--decode", "Fill", "--type", "1"], "not both"),
    ],
)
def test_invalid_decode_options_are_reported(fills, tmp, arguments, message):
    ran = tapewire("export", fills, "--to", tmp / "x.csv", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_a_class_is_made_only_for_message_types_that_are_decoded(fills, monkeypatch):
    made = []
    make = table.make_class
    monkeypatch.setattr(table, "make_class", lambda layout: made.append(layout) or make(layout))
    messages = Messages(fills)
    assert messages.type_id_of("Fill") == 0x2F01
    assert messages.name_of(0x2F01) == "Fill"
    assert [layout.version for layout in messages.layouts_of(0x2F01)] == [1]
    assert made == []
    with tw.open_log(fills) as log:
        assert messages.fields_of(log.next()) == OBJECTS[0]
    assert len(made) == 1


def test_text_of_a_message_cannot_control_a_terminal(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append_message(protocol.replace(FILLS[0], venue="Ä\x9b\x7f\u2028"))
    shown = tapewire("tail", tmp / "q").out
    assert r'venue="Ä\u009b\u007f\u2028"' in shown
    assert all(line.isprintable() for line in shown.split("\n"))
