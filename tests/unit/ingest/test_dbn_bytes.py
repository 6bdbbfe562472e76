"""DBN: invalid bytes, made by hand, and packed files."""

import json
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire import ingest
from tapewire.errors import CorruptSource, InvalidOption, TapewireError
from tapewire.ingest.formats.dbn_format import RunReader
from tapewire.ingest.source import SourceFile
from tests.support.archives import count_of, records_of
from tests.support.dbn_files import plain_header, plain_mbo, random_mbo

VENUE = "xnas.itch"
HEADER = plain_header()
MAX = 0xFFFFFFFF


def run(tmp, data, name="day.dbn", **options):
    (tmp / name).write_bytes(data)
    return ingest.run("dbn", [tmp / name], tmp / "archive", **options)


def orders(tmp, symbol="7"):
    events = [record.decode() for record in records_of(tmp / "archive", VENUE, symbol, "book")]
    return [event.order.order_id for event in events if event.loss is None][1:]  # after the reset


def symbols(*counts):
    """The part of a header after its fixed fields: counts that are 0."""
    return struct.pack("<5I", *counts)


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        (b"DBZ\x01" + bytes(200), 0, "not a DBN file"),
        (b"DB", 0, "not a DBN file"),
        (b"DBN\x03\x90", 0, "not a DBN file"),
        (b"DBN\x00" + HEADER[4:], 3, "version=0"),
        (b"DBN\x04" + HEADER[4:], 3, "version=4"),
        (plain_header(length=0), 4, "length=0"),
        (plain_header(length=MAX), 4, "length=4294967295"),
        (plain_header(length=1000), len(HEADER), "ends within its header"),
        (plain_header(symbols(MAX, 0, 0, 0, 0)), 112, "the header is damaged: count="),
        (plain_header(symbols(0, MAX, 0, 0, 0)), 116, "the header is damaged: count="),
        (plain_header(symbols(0, 0, 0, 0, MAX)), 128, "the header is damaged: count="),
        (plain_header(bytes(12)), 120, "the header is damaged: bytes=4, left=0"),
        (HEADER[:53] + b"\0\0" + HEADER[55:], 8, "invalid symbol length: bytes=0"),
        (HEADER[:53] + b"\xff\xff" + HEADER[55:], 8, "invalid symbol length: bytes=65535"),
    ],
)
def test_an_invalid_header_is_named_with_its_offset(tmp, data, offset, message):
    with pytest.raises(CorruptSource, match=message) as caught:
        run(tmp, data)
    assert caught.value.offset == offset
    assert str(tmp / "day.dbn") in str(caught.value)


def mapped(first, number):
    one = b"ACME".ljust(71, b"\0") + struct.pack("<III", 1, first, 20240103)
    return plain_header(symbols(0, 0, 0, 0, 1) + one + number.ljust(71, b"\0"))


def test_names_in_the_header_are_used(tmp):
    run(tmp, mapped(20240102, b"7") + plain_mbo())
    assert orders(tmp, "ACME") == [1]


@pytest.mark.parametrize(
    ("first", "number"), [(20240231, b"7"), (0, b"7"), (20240102, b"seven"), (20240102, b"9" * 70)]
)
def test_a_name_with_no_day_or_number_is_damage(tmp, first, number):
    with pytest.raises(CorruptSource, match="the header is damaged"):
        run(tmp, mapped(first, number) + plain_mbo())


@pytest.mark.parametrize("left", [1, 15, 16, 55])
def test_a_file_truncated_within_a_record_is_imported_up_to_there(tmp, left):
    complete = HEADER + plain_mbo(order_id=1) + plain_mbo(order_id=2)
    with pytest.raises(CorruptSource, match="ends within a record") as caught:
        run(tmp, complete + plain_mbo(order_id=3)[:left])
    assert caught.value.offset == len(complete)
    assert orders(tmp) == [1, 2]


@pytest.mark.parametrize("words", [0, 1, 3])
def test_a_record_shorter_than_its_head_ends_the_file(tmp, words):
    """The position of the next one is unknown."""
    with pytest.raises(CorruptSource, match=f"length={words * 4}") as caught:
        run(tmp, HEADER + plain_mbo() + bytes([words]) + bytes(99))
    assert caught.value.offset == len(HEADER) + 56
    assert orders(tmp) == [1]


def test_a_record_with_the_wrong_length_for_its_type_is_a_bad_row(tmp):
    longer = plain_mbo(order_id=2, length=15) + bytes(4)
    sent = plain_mbo(order_id=3, length=16) + bytes(8)  # a time of sending that was not announced
    head = plain_mbo(order_id=4, length=4)[:16]
    data = HEADER + plain_mbo(order_id=1) + longer + sent + head + plain_mbo(order_id=5)
    summary = run(tmp, data)
    assert summary.bad == {"wrong length for its type": 3}
    kept = [json.loads(line)["line"] for line in Path(summary.rejected).read_text().splitlines()]
    assert kept == [2, 3, 4]
    assert orders(tmp) == [1, 5]


def test_an_unknown_type_and_an_unknown_action(tmp):
    data = HEADER + plain_mbo(rtype=0x77) + plain_mbo(b"\xff") + plain_mbo(order_id=2)
    summary = run(tmp, data)
    assert summary.skipped == {"of type 0x77": 1}
    assert summary.bad == {"unknown action": 1}
    assert orders(tmp) == [2]


def test_records_are_found_whatever_pieces_the_file_comes_in(tmp, monkeypatch):
    from tapewire.ingest.formats import dbn_format

    data = random_mbo(300, seed=4)
    run(tmp, data)
    complete = {s: count_of(tmp / "archive", VENUE, s, "book") for s in ("7", "8")}

    def pieces(source):
        content = source.path.read_bytes()
        yield from (content[at : at + 37] for at in range(0, len(content), 37))
        yield b""

    monkeypatch.setattr(dbn_format, "pieces", pieces)
    reader = RunReader(SourceFile(tmp / "day.dbn"))
    numbers = [run.number for runs in reader.runs() for run in runs]
    assert numbers == list(range(1, 301))
    ingest.run("dbn", [tmp / "day.dbn"], tmp / "pieces")
    assert complete == {s: count_of(tmp / "pieces", VENUE, s, "book") for s in complete}


def test_runs_of_types_are_found_in_linear_time(tmp):
    """If types alternate, each record is a run."""
    (tmp / "x").write_bytes(HEADER + (plain_mbo() + plain_mbo(rtype=0x77)) * 9_000)
    runs = [run for runs in RunReader(SourceFile(tmp / "x")).runs() for run in runs]
    assert [run.rtype for run in runs] == [0xA0, 0x77] * 9_000


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arbitrary_bytes_give_records_bad_rows_or_a_typed_error(tmp_path_factory, data):
    tmp = tmp_path_factory.mktemp("dbn")
    made = bytearray(
        data.draw(st.sampled_from([HEADER, mapped(20240102, b"7"), plain_header(version=1)]))
        + b"".join(
            plain_mbo(
                data.draw(st.sampled_from([b"A", b"C", b"M", b"R", b"T", b"F", b"?"])),
                data.draw(st.integers(0, 2**64 - 1)),
                data.draw(st.sampled_from([b"A", b"B", b"N"])),
                data.draw(st.integers(-(2**63), 2**63 - 1)),
                data.draw(st.integers(0, MAX)),
                flags=data.draw(st.integers(0, 255)),
                recv=data.draw(st.integers(0, 2**64 - 1)),
            )
            for _ in range(data.draw(st.integers(0, 4)))
        )
    )
    for _ in range(data.draw(st.integers(0, 3))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    try:
        summary = run(tmp, bytes(made), size_scale=9)
    except TapewireError as error:
        assert str(error)  # noqa: PT017 - both are valid outcomes
    else:
        assert summary.rows >= sum(summary.bad.values())


def packed(data, **options):
    zstandard = pytest.importorskip("zstandard", reason="zstandard packs the files: install it")
    return zstandard.ZstdCompressor(**options).compress(data)


def test_a_zstd_file_of_several_frames_is_read(tmp):
    data = random_mbo(2_000, seed=2)
    summary = run(tmp, data)
    both = run(tmp / "archive", packed(data[:30_000]) + packed(data[30_000:]), "day.dbn.zst")
    assert both.records == summary.records > 1_000
    assert both.rows == 2_000


@pytest.mark.parametrize("missing", [1, 40])
def test_a_truncated_zstd_file_is_imported_up_to_there(tmp, missing):
    cut = packed(HEADER + plain_mbo(order_id=1)) + packed(plain_mbo(order_id=2))[:-missing]
    why = "truncated or damaged: the last zstd frame is truncated"
    with pytest.raises(CorruptSource, match=why):
        run(tmp, cut)
    assert orders(tmp)[:1] == [1]


def test_a_damaged_zstd_file_is_named(tmp):
    good = packed(HEADER + plain_mbo(order_id=1))
    with pytest.raises(CorruptSource, match="truncated or damaged"):
        run(tmp, good + b"\x28\xb5\x2f\xfd" + b"\xff" * 50)
    assert orders(tmp) == [1]


def test_a_zstd_file_without_its_package_is_an_error_with_what_to_install(tmp, monkeypatch):
    data = packed(HEADER)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InvalidOption, match="pip install zstandard"):
        run(tmp, data)
