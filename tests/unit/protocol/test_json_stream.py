"""A long list of a JSON document is read entry by entry, with the values of `json.loads`."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapewire as tw
from tapewire.protocol import json_stream
from tapewire.protocol.json_file import InvalidField
from tapewire.protocol.json_stream import MAX_VALUE_CHARS, stream_entries

HEAD = b'{"format": "f", "version": 1, "names": '


def read(text, most=1000):
    return list(stream_entries(io.BytesIO(text), "f", 1, "names", most))


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)


@given(
    names=st.lists(VALUES, max_size=30),
    order=st.permutations(["format", "version", "names"]),
    indent=st.none() | st.integers(0, 3),
    ascii_only=st.booleans(),
    block=st.integers(1, 40),
)
def test_any_valid_document_gives_the_entries_of_json_loads(
    names, order, indent, ascii_only, block
):
    values = {"format": "f", "version": 1, "names": names}
    document = {name: values[name] for name in order}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    encoded = text.encode(errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_BLOCK_BYTES", block)
        patch.setattr(json_stream, "MAX_VALUE_CHARS", 4096)
        try:
            assert read(encoded) == json.loads(encoded.decode())["names"]
        except UnicodeDecodeError:
            with pytest.raises(InvalidField):
                read(encoded)


def test_space_of_any_length_separates_entries():
    gap = b" \t\r\n" * 100_000
    assert read(HEAD + b"[" + gap + b"1," + gap + b"2" + gap + b"]" + gap + b"}" + gap) == [1, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Expecting value: character=0"),
        (b"   ", "Expecting value: character=3"),
        (b"[1]", "must be an object"),
        (b"{", "expected the name of a member"),
        (b"{}", "must be an object with"),
        (b"{1: 2}", "expected the name of a member: character=1"),
        (b'{"format": "f",}', "expected the name of a member"),
        (b'{"format" "f"}', "expected :"),
        (HEAD + b"[1", "expected , or ]: character=41"),
        (HEAD + b"[1,]}", "Expecting value: character=42"),
        (HEAD + b"[1 2]}", "expected , or ]: character=42"),
        (HEAD + b"[1]", "expected , or }"),
        (HEAD + b"[1]} x", "data past the end of the document"),
        (HEAD + b'[1], "names": [2]}', "duplicate member"),
        (HEAD + b'[1], "format": "f"}', "duplicate member"),
        (HEAD + b'[{"a": 1, "a": 2}]}', "duplicate member"),
        (HEAD + b"[NaN]}", "not a number: NaN"),
        (HEAD + b"[" + b"9" * 101 + b"]}", "integer too long: digits=101"),
        (HEAD + b"[" + b"[" * 10_000, "nested too deep"),
        (HEAD + b'["\xff"]}', "invalid start byte"),
        (HEAD + b'["\xe2\x82', "unexpected end of data"),
        (HEAD + b"{}}", "names must be of type list"),
        (HEAD + b'[1], "more": 1}', "unknown member: 'more'"),
        (b'{"format": "g", "version": 1, "names": []}', "must be an object with"),
        (b'{"format": "f", "version": true, "names": []}', "version must be of type int"),
        (b'{"names": [1], "format": "f"}', "lacks a member: version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_document_is_refused(text, why):
    with pytest.raises(InvalidField) as caught:
        read(text)
    assert why in str(caught.value)


def test_the_size_of_an_entry_is_limited():
    longest = b'"' + b"x" * (MAX_VALUE_CHARS - 2) + b'"'
    assert len(read(HEAD + b"[" + longest + b"," + longest + b"]}")) == 2
    for entry in (
        b'"' + longest[1:-1] + b'x"',
        b'"' + longest[1:-1] * 20 + b'"',
        b"[" + b"1," * MAX_VALUE_CHARS + b"1]",
        b"{" + b'"a": 1' + b" " * MAX_VALUE_CHARS * 20 + b"}",
    ):
        with pytest.raises(InvalidField, match="more than 16384 characters"):
            read(HEAD + b"[" + entry + b"]}" + b" " * 100_000)


def test_more_entries_than_permitted_are_not_read():
    file = io.BytesIO(HEAD + b"[" + b"1," * 1_000_000 + b"1]}")
    with pytest.raises(InvalidField, match=r"too many names: .*max=10"):
        list(stream_entries(file, "f", 1, "names", 10))
    assert file.tell() < 200_000


def test_a_later_version_is_reported_before_what_it_may_have_added():
    with pytest.raises(tw.UnsupportedVersion, match="version=2"):
        read(b'{"format": "f", "version": 2, "what": {"is": "new"}, "names": 7, "names": 7}')


def test_a_document_with_many_members_is_refused_before_they_are_read():
    members = b",".join(b'"m%d": %d' % (n, n) for n in range(100_000))
    file = io.BytesIO(b'{"format": "f", "version": 1, ' + members + b"}")
    with pytest.raises(InvalidField, match="more than 16 members"):
        list(stream_entries(file, "f", 1, "names", 1000))
    assert file.tell() < 100_000
