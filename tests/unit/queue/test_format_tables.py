"""The layouts that the tests use to parse files, compared with the C++ headers.

Both are written from one document; neither may change alone.
"""

import re
import struct
import zlib
from pathlib import Path

import pytest

from tests.support import queue_format as qf

HEADERS = Path(__file__).parents[3] / "native" / "include" / "tapewire" / "format"
QUEUE_HEADERS = [
    "control",
    "reader_meta",
    "record",
    "seek_index",
    "segment",
    "stats",
    "tail_checkpoint",
]
SIZES = {
    "std::uint8_t": 1,
    "std::uint16_t": 2,
    "std::uint32_t": 4,
    "std::uint64_t": 8,
    "char": 1,
}


def source():
    text = "\n".join((HEADERS / f"{name}.hpp").read_text() for name in QUEUE_HEADERS)
    # Any white space becomes one space, so that line breaks do not matter.
    return re.sub(r"\s+", " ", re.sub(r"//.*", "", text))


def number(text):
    """The value of a C++ integer constant expression without names, or None."""
    text = re.sub(r"(?<=[0-9a-fA-F])(?:ull|u)\b", "", text.strip().replace("'", ""))
    if not re.fullmatch(r"(0x[0-9a-fA-F]+|[0-9]+| |<<|\*)+", text):
        return None
    return eval(text, {})


def constants():
    found = {}
    for name, value in re.findall(r"constexpr [\w:]+ (k\w+) = ([^;{]+);", source()):
        if number(value) is not None:
            found[name] = number(value)
    return found


def structs():
    """``{struct: (size, {field: (offset, bytes)})}`` by the rules of natural alignment."""
    found = {}
    for name, body in re.findall(r"struct (?:alignas\(\d+\) )?(\w+) \{(.*?)\};", source()):
        at, fields, largest = 0, {}, 1
        for kind, field, count in re.findall(r"([\w:]+) (\w+)(?:\[(\d+)\])?;", body):
            if kind not in SIZES:  # an array of structs: its own size is asserted separately
                break
            size = SIZES[kind]
            largest = max(largest, size)
            at = (at + size - 1) // size * size
            fields[field] = (at, size * int(count or 1))
            at += size * int(count or 1)
        else:
            found[name] = ((at + largest - 1) // largest * largest, fields)
    return found


@pytest.mark.parametrize("name", sorted(qf.LAYOUTS))
def test_a_layout_has_the_size_and_offsets_of_the_cpp_struct(name):
    size, fields = qf.LAYOUTS[name]
    cpp_size, cpp_fields = structs()[name]
    named = {k: v for k, v in cpp_fields.items() if not k.startswith("reserved")}
    assert size == cpp_size
    assert {k: (at, struct.calcsize(code)) for k, (at, code) in fields.items()} == named


def test_every_struct_of_the_headers_has_its_layout_here():
    assert set(structs()) == set(qf.LAYOUTS)


def test_constants_are_those_of_the_headers():
    found = constants()
    assert {name: found.get(name) for name in qf.CONSTANTS} == qf.CONSTANTS


def test_magic_texts_are_those_of_the_headers():
    def characters(name):
        listed = re.search(name + r"\[\d+\] = \{(.*?)\}", source()).group(1)
        return b"".join(
            b"\0" if c == "\\0" else c.encode() for c in re.findall(r"'(\\0|.)'", listed)
        )

    assert characters("kSeekIndexMagic") == qf.INDEX_MAGIC
    assert characters("kSeekIndexTrailerMagic") == qf.INDEX_TRAILER_MAGIC


def test_every_static_assert_on_a_size_or_an_offset_agrees():
    known = {**constants(), **qf.CONSTANTS}

    def value(text):
        return known[text] if text in known else number(text)

    asserted = 0
    for name, expected in re.findall(r"static_assert\(sizeof\((\w+)\) == ([^)]+)\);", source()):
        if name in qf.LAYOUTS:
            assert qf.LAYOUTS[name][0] == value(expected), name
            asserted += 1
    for name, field, expected in re.findall(
        r"static_assert\(offsetof\((\w+), (\w+)\) == ([^)]+)\);", source()
    ):
        at = structs()[name][1][field][0]
        assert at == value(expected), f"{name}.{field}"
        asserted += 1
    assert asserted > 50


def test_every_struct_is_asserted_in_size():
    asserted = set(re.findall(r"static_assert\(sizeof\((\w+)\) == ", source()))
    assert set(qf.LAYOUTS) <= asserted


def test_crc32c_is_castagnoli():
    assert qf.crc32c(b"123456789") == 0xE3069283
    assert zlib.crc32(b"123456789") == 0xCBF43926
