"""The messages have the documented layout in C++, in Python and in numpy."""

import re
import struct
from pathlib import Path

import pytest

from tapewire.protocol import _native, market
from tests.support.market_format import L2_DIFF, STRUCTS

LAYOUTS = _native.struct_layouts()


def offsets(packer, names):
    """Return offset and type of the fields of a struct format, from the format itself."""
    found, at = {}, 0
    names = iter(names)
    count = ""
    for letter in packer.format[1:]:
        if letter.isdigit():
            count += letter
            continue
        if letter == "x":
            at += int(count or 1)
        else:
            size = struct.calcsize(f"<{letter}")
            kind = "f" if letter == "d" else "i" if letter.islower() else "u"
            found[next(names)] = (at, f"{'<' if size > 1 else ''}{kind}{size}")
            at += size
        count = ""
    return found


@pytest.mark.parametrize("name", STRUCTS)
def test_a_native_struct_has_the_documented_layout(name):
    packer, names = STRUCTS[name]
    assert LAYOUTS[name] == (packer.size, offsets(packer, names))


@pytest.mark.parametrize("cls", market.MESSAGES.values(), ids=lambda cls: cls.__name__)
def test_a_message_class_has_the_layout_of_its_native_struct(cls):
    size, fields = LAYOUTS[cls.__name__]
    layout = cls.layout()
    assert layout.size == size
    assert {f.name: (f.offset, f.type.numpy_format) for f in layout.fields} == fields
    assert cls.dtype == _native.struct_dtype(cls.__name__)


# Heading of a table on the page, if it is not the name of the struct.
HEADINGS = {"BookEventHeader": "### The header", "Quote": "## Quote", "TradeTick": "## TradeTick"}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_page_has_the_same_table(name):
    page = Path(__file__).resolve().parents[3] / "docs" / "formats" / "messages.md"
    heading = HEADINGS.get(name, f"### {name}")
    if name in ("BookTicker", "Trade"):
        heading = f"| {name} offset"
    _, found, rest = page.read_text().partition(f"\n{heading}")
    assert found
    table = rest[rest.index("|---") :].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (`\w+`|reserved)", table, re.MULTILINE)
    size, fields = LAYOUTS[name]
    listed = {field.strip("`"): (int(at), int(n)) for at, n, field in rows if field != "reserved"}
    assert listed == {field: (at, int(kind[-1])) for field, (at, kind) in fields.items()}
    # Without gaps: reserved bytes are listed, too.
    ends = [0] + [int(at) + int(n) for at, n, _ in rows]
    assert [int(at) for at, _, _ in rows] == ends[:-1]
    assert ends[-1] == size


def test_dtypes_are_those_of_the_structs():
    assert market.HEADER_DTYPE.itemsize == 64
    assert market.LEVEL_DTYPE.descr == [("price", "<i8"), ("size", "<i8")]
    assert market.L3_DTYPE.fields["price"][1] == 40
    assert market.L3_RECORD_DTYPE.itemsize == 128
    assert market.L3_RECORD_DTYPE.fields["order"][1] == 64


def test_every_struct_has_its_table():
    assert set(LAYOUTS) == {*STRUCTS, "LevelRow"}
    assert L2_DIFF.size == 32


@pytest.mark.parametrize(
    ("names", "native"),
    [
        (
            market.EventType,
            {"SNAPSHOT": 1, "DIFF": 2, "RESET": 3, "HEARTBEAT": 4, "LOSS": 5},
        ),
        (market.BookMode, {"L2": 0, "L3": 1}),
        (market.Side, {"UNKNOWN": 0, "BUY": 1, "SELL": 2}),
        (market.EventFlags, {"ABSOLUTE": 1, "DELTA": 2, "HAS_SCALE": 4}),
    ],
)
def test_enumerations_have_the_documented_values(names, native):
    assert {name: int(value) for name, value in names.__members__.items()} == native


def test_type_ids():
    assert market.NAMES == {
        0x1000: "BookEvent",
        0x1001: "BookTicker",
        0x1002: "Trade",
        0x1003: "Quote",
        0x1004: "TradeTick",
        0x10FF: "VenueRaw",
    }
