"""`types.json` files of other programs: every rule that they can violate."""

import json
import os

import pytest

import tapewire as tw
from tapewire import protocol
from tapewire.protocol import types_file


def document(**changes):
    """A valid document with one type of two fields, after `changes` to its members."""
    fields = [
        {"name": "a", "type": "u64", "offset": 0, "count": 1},
        {"name": "b", "type": "char", "offset": 8, "count": 4},
    ]
    entry = {"type_id": 8193, "name": "Fill", "version": 1, "size": 16, "fields": fields}
    whole = {"format": "tapewire-types", "version": 1, "types": [entry]}
    for path, value in changes.items():
        at = {"entry": entry, "a": fields[0], "b": fields[1], "whole": whole}
        where, name = path.split("_", 1)
        if value is ...:
            del at[where][name]
        else:
            at[where][name] = value
    return whole


def write(directory, value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    (directory / "types.json").write_bytes(text)


def test_a_valid_file_is_read(tmp):
    write(tmp, document())
    (layout,) = types_file.read(tmp)
    assert layout.title == "Fill version 1 (16 bytes)"
    assert layout.struct_format == "<Q4s4x"


def test_no_file_is_no_types(tmp):
    assert types_file.read(tmp) == []
    assert len(protocol.TypeTable.load(tmp)) == 0


def test_fields_may_have_other_offsets_than_those_of_a_c_compiler(tmp):
    write(tmp, document(a_offset=1, b_offset=11, entry_size=21))
    (layout,) = types_file.read(tmp)
    assert layout.struct_format == "<1xQ2x4s6x"
    assert layout.dtype.itemsize == 21


def test_a_file_is_written_as_it_is_read(tmp, fill):
    types_file.merge(tmp, [fill.layout()])
    assert types_file.read(tmp) == [fill.layout()]
    assert types_file.render([fill.layout()]).decode().splitlines()[:3] == [
        '{"format": "tapewire-types", "version": 1, "types": [',
        ' {"type_id": 8193, "name": "Fill", "version": 1, "size": 40, "fields": [',
        '   {"name": "order_id", "type": "u64", "offset": 0, "count": 1},',
    ]


BROKEN = [
    (b"", "not valid JSON"),
    (b"\xff\xfe", "not valid JSON"),
    (b"[" * 100_000, "not valid JSON"),
    (b'{"a": ' * 100_000, "not valid JSON"),
    (b'{"version": 1, "version": 1}', "duplicate member"),
    (b'{"version": NaN}', "not a number: NaN"),
    (b'{"version": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    ([], "the document must be an object"),
    (document(whole_format="other"), "the document must be an object"),
    (document(whole_format=...), "the document must be an object"),
    (document(whole_version=0), "no such version: version=0"),
    (document(whole_version=True), "version must be of type int"),
    (document(whole_version="1"), "version must be of type int"),
    (document(whole_more=1), "the document has an unknown member: 'more'"),
    (document(whole_types={}), "the document.types must be of type list"),
    (document(whole_types=[1]), "types[0] must be an object, not 1"),
    (document(whole_types=[{}] * 5000), "too many types: types=5000"),
    (document(entry_name=...), "types[0] lacks a member: name"),
    (document(entry_name="x = 1; import os"), "types[0]: message 'x = 1; import os': the name"),
    (document(entry_name="class"), "must be an identifier: name='class'"),
    (document(entry_type_id=65535), "types[0]: type_id must be from 0 to 0xFFFE: type_id=65535"),
    (document(entry_type_id=-1), "type_id must be"),
    (document(entry_type_id=1.0), "types[0].type_id must be of type int: type_id=1.0"),
    (document(entry_version=0), "version must be from 1 to 65535: version=0"),
    (document(entry_size=11), "the last field ends past the message: end=12, size=11"),
    (document(entry_size=2**40), "size must be from 1 to 65536"),
    (document(entry_size=-1), "size must be from 1 to 65536"),
    (document(entry_fields=[]), "1 to 255 fields: fields=0"),
    (document(entry_fields=[1]), "types[0].fields[0] must be an object"),
    (document(a_name="b"), "duplicate field: field='b'"),
    (document(a_name="a b"), "the name of a field must be an identifier: field='a b'"),
    (document(a_name="décode"), "the name of a field must be an identifier"),
    (document(a_name="decode"), "is an attribute of every message: field='decode'"),
    (document(a_name=5), "types[0].fields[0].name must be of type str: name=5"),
    (document(a_type="u65"), "types[0].fields[0]: unknown type: type='u65'"),
    (document(a_type="object"), "unknown type: type='object'"),
    (document(a_offset=-1), "must be in order and not overlap: field='a', offset=-1"),
    (document(a_offset=10**30), "must be in order and not overlap: field='a', offset=1000"),
    (document(b_offset=7), "field='b', offset=7, previous_end=8"),
    (document(a_count=0), "types[0].fields[0]: count must be from 2 to 8192: u64[0]"),
    (document(a_count=10**30), "count must be from 2 to 8192"),
    (document(b_count=0), "types[0].fields[1]: count must be from 1 to 65536: char[0]"),
    (document(b_count=-4), "count must be from 1 to 65536"),
    (document(b_extra=1), "types[0].fields[1] has an unknown member: 'extra'"),
    (document(whole_types=document()["types"] * 2), "types[1]: duplicate layout: type_id=8193"),
    (
        document(whole_types=document()["types"] + document(entry_version=2)["types"]),
        "types[1]: a newer version must be larger",
    ),
]


@pytest.mark.parametrize(("content", "why"), BROKEN, ids=[why for _, why in BROKEN])
def test_an_invalid_file_is_refused_with_file_and_place(tmp, content, why):
    write(tmp, content)
    with pytest.raises(tw.CorruptMetadata) as caught:
        protocol.TypeTable.load(tmp)
    assert why in str(caught.value)
    assert caught.value.path == str(tmp / "types.json")


def test_a_file_of_a_later_release_is_refused_with_the_remedy(tmp):
    write(tmp, document(whole_version=2, whole_more=1))
    with pytest.raises(tw.UnsupportedVersion, match=r"version=2, known=1.*or upgrade") as caught:
        types_file.read(tmp)
    assert caught.value.path == str(tmp / "types.json")


def test_a_file_that_is_too_large_is_refused_without_reading_it(tmp):
    with open(tmp / "types.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(tw.CorruptMetadata, match="file too large: bytes=1099511627776"):
        types_file.read(tmp)


def test_a_fifo_a_directory_and_a_link_in_its_place_are_refused(tmp):
    os.mkfifo(tmp / "types.json")
    with pytest.raises(tw.CorruptMetadata, match="not a regular file"):
        types_file.read(tmp)
    (tmp / "types.json").unlink()
    (tmp / "types.json").mkdir()
    with pytest.raises(tw.CorruptMetadata, match="not a regular file"):
        types_file.read(tmp)
    (tmp / "types.json").rmdir()
    (tmp / "types.json").symlink_to("/etc/passwd")
    with pytest.raises(tw.CorruptMetadata, match="links are not followed"):
        types_file.read(tmp)


def test_more_messages_than_a_reader_accepts_are_not_written(tmp, fill, monkeypatch):
    monkeypatch.setattr(types_file, "MAX_FILE_BYTES", 100)
    with pytest.raises(tw.InvalidMessage, match="too many messages for one log: types=1"):
        types_file.merge(tmp, [fill.layout()])
    assert os.listdir(tmp) == []


def test_versions_are_read_in_any_order_and_returned_sorted(tmp):
    whole = document()
    (entry,) = whole["types"]
    sizes = {1: 16, 2: 17, 3: 30, 4: 31}
    whole["types"] = [entry | {"version": v, "size": sizes[v]} for v in (3, 1, 4, 2)]
    write(tmp, whole)
    assert [layout.version for layout in types_file.read(tmp)] == [1, 2, 3, 4]
    for version, size in ((1, 17), (2, 16), (3, 17), (3, 31), (4, 30)):
        clash = [
            each | {"size": size} if each["version"] == version else each for each in whole["types"]
        ]
        write(tmp, whole | {"types": clash})
        with pytest.raises(tw.CorruptMetadata, match="a newer version must be larger"):
            types_file.read(tmp)


def test_thousands_of_versions_are_each_compared_with_few(tmp, monkeypatch):
    whole = document()
    (entry,) = whole["types"]
    whole["types"] = [
        entry | {"version": n + 1, "size": n + 16} for n in range(types_file.MAX_LAYOUTS)
    ]
    write(tmp, whole)
    compared = []
    check = types_file.check_versions
    monkeypatch.setattr(
        types_file, "check_versions", lambda known, new: compared.extend(known) or check(known, new)
    )
    assert len(types_file.read(tmp)) == types_file.MAX_LAYOUTS
    assert len(compared) <= 2 * types_file.MAX_LAYOUTS
