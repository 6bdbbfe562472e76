"""Files to import: plain, gzip, zip, truncated."""

import gzip
import zipfile

import pytest

from tapewire.errors import CorruptSource
from tapewire.ingest import SourceFile, source

LINES = [b"first", b"second", b"", b"last without an end"]
TEXT = b"first\nsecond\r\n\nlast without an end"
NUMBERED = list(enumerate(LINES, 1))


def test_a_plain_file_gives_its_lines_and_their_numbers(tmp):
    (tmp / "a").write_bytes(TEXT)
    assert list(SourceFile(tmp / "a").lines()) == NUMBERED


def test_gzip_is_detected_from_its_bytes_whatever_its_name(tmp):
    (tmp / "a.txt").write_bytes(gzip.compress(TEXT))
    assert list(SourceFile(tmp / "a.txt").lines()) == NUMBERED


def test_a_zip_of_one_member_needs_no_name(tmp):
    with zipfile.ZipFile(tmp / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("only.txt", TEXT)
    file = SourceFile(tmp / "a.zip")
    assert list(file.lines()) == NUMBERED
    assert file.name == "a.zip!only.txt"


def test_a_member_of_a_zip_is_named_after_an_exclamation_mark(tmp):
    with zipfile.ZipFile(tmp / "a.zip", "w") as archive:
        archive.writestr("one.txt", b"no")
        archive.writestr("two.txt", TEXT)
    assert list(SourceFile(f"{tmp}/a.zip!two.txt").lines()) == NUMBERED
    with pytest.raises(CorruptSource, match=r"it has one\.txt, two\.txt"):
        SourceFile(tmp / "a.zip")


def test_a_truncated_gzip_is_read_up_to_the_end_and_then_named(tmp):
    complete = gzip.compress(b"".join(b"%d\n" % i for i in range(100_000)))
    (tmp / "cut.gz").write_bytes(complete[: len(complete) // 2])
    lines = SourceFile(tmp / "cut.gz").lines()
    for number in range(1, 40_000):
        assert next(lines) == (number, b"%d" % (number - 1))
    with pytest.raises(CorruptSource, match=r"truncated or damaged.*cut\.gz"):
        list(lines)


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_damaged_gzip_is_found(tmp, place):
    complete = bytearray(gzip.compress(b"".join(b"%d\n" % (i * i) for i in range(50_000))))
    complete[int(len(complete) * place)] ^= 0x55
    (tmp / "bad.gz").write_bytes(complete)
    with pytest.raises(CorruptSource):
        list(SourceFile(tmp / "bad.gz").lines())


def test_a_damaged_zip_is_found(tmp):
    (tmp / "bad.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(CorruptSource, match=r"bad\.zip"):
        SourceFile(tmp / "bad.zip")


def test_a_directory_or_a_device_is_refused(tmp):
    with pytest.raises(CorruptSource, match="not a regular file"):
        SourceFile(tmp)
    with pytest.raises(CorruptSource, match="not a regular file"):
        SourceFile("/dev/zero")


def test_of_a_line_too_long_only_the_start_is_read(tmp, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 4)
    (tmp / "a").write_bytes(b"123456789\nab\nabcd\nabc\nabcdefgh")
    assert list(SourceFile(tmp / "a").lines()) == [
        (1, b"1234"),
        (2, b"ab"),
        (3, b"abcd"),
        (4, b"abc"),
        (5, b"abcd"),
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_read_is_counted_up_to_the_size(tmp, packed):
    text = b"".join(b"%d\n" % (i * i) for i in range(500_000))
    (tmp / "a").write_bytes(gzip.compress(text, 1) if packed else text)
    file = SourceFile(tmp / "a")
    seen = {file.read_bytes for _ in file.lines()}
    assert file.read_bytes == file.size
    assert len(seen) > 2


def test_gzip_of_several_members_is_one_file(tmp):
    parts = [b"first\nsec", b"", b"ond\r\n", b"\nlast without an end"]
    (tmp / "a.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    assert list(SourceFile(tmp / "a.gz").lines()) == NUMBERED


@pytest.mark.parametrize("offset", [6, 8])
def test_a_member_that_cannot_be_unpacked_is_named(tmp, offset):
    """Encrypted (the flags at 6), or compressed by an unknown method (at 8)."""
    with zipfile.ZipFile(tmp / "a.zip", "w") as archive:
        archive.writestr("only.txt", TEXT)
    data = bytearray((tmp / "a.zip").read_bytes())
    in_directory = data.index(b"PK\x01\x02") + offset + 2
    data[offset] = data[in_directory] = 1 if offset == 6 else 77
    (tmp / "a.zip").write_bytes(data)
    with pytest.raises(CorruptSource, match=r"a\.zip"):
        list(SourceFile(tmp / "a.zip").lines())


def test_lines_of_a_zstd_file(tmp):
    zstandard = pytest.importorskip("zstandard", reason="zstandard packs the file: install it")
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    (tmp / "a").write_bytes(zstandard.compress(text))
    source = SourceFile(tmp / "a")
    assert b"".join(line + b"\n" for _, line in source.lines()) == text
    assert source.read_bytes == source.size
