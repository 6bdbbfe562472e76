"""Damage in packed captures: nothing of a member whose checksum is wrong is imported."""

import contextlib
import gzip
import random
import zipfile
import zlib

import pytest

from tapewire import ingest
from tapewire.errors import CorruptSource, TapewireError
from tapewire.ingest import SourceFile
from tests.support.captures import content_of, futures_lines, is_loss

FORMAT = "binance-usdm"
TEXT = b"\n".join(futures_lines(60, bad_every=0)) + b"\n"


def pack_zip(path, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("only.txt", data)


def packed(tmp, kind):
    path = tmp / f"good.{kind}"
    if kind == "zip":
        pack_zip(path, TEXT)
    elif kind == "zst":
        zstandard = pytest.importorskip("zstandard", reason="zstandard packs the file: install it")
        path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    else:
        path.write_bytes(gzip.compress(TEXT, mtime=0))
    return path


def imported(path, archive):
    """The logs of an import that may end with an error, without the losses that it marked."""
    with contextlib.suppress(TapewireError):
        ingest.run(FORMAT, [path], archive)
    if not (archive / "instruments.json").exists():
        return {}
    return {
        name: [row[1:] for row in rows if row[2] != 0x1000 or not is_loss(row[3])]
        for name, rows in content_of(archive).items()
        if isinstance(name, str) and name.startswith("v1/")
    }


@pytest.fixture
def small_pieces(monkeypatch):
    """As if the capture were large: it is unpacked and read in many steps."""
    monkeypatch.setattr("tapewire.ingest.unpacking._PIECE", 256)
    monkeypatch.setattr("tapewire.ingest.source._PIECE", 256)
    monkeypatch.setattr("tapewire.ingest.zstd._STEP_BYTES", 64)
    monkeypatch.setattr("tapewire.ingest.pending.FULL_RECORDS", 4)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", ["gz", "zip", "zst"])
def test_no_single_bit_flip_gives_a_record_that_the_capture_does_not_have(tmp, kind):
    good = packed(tmp, kind)
    want = imported(good, tmp / "good")
    data = good.read_bytes()
    rng = random.Random(kind)
    bits = sorted({*range(24 * 8), *rng.sample(range(len(data) * 8), 150)})
    given = 0
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path = tmp / f"{bit}.{kind}"
        path.write_bytes(damaged)
        found = imported(path, tmp / f"archive-{bit}")
        for name, rows in found.items():
            given += 1
            assert rows == want[name][: len(rows)], f"bit {bit} of {name}"
    assert given > 0, "flips in fields that nothing depends on leave the import complete"


def members(count=4):
    lines = futures_lines(4_000, bad_every=0)
    step = len(lines) // count + 1
    return [b"\n".join(lines[i : i + step]) + b"\n" for i in range(0, len(lines), step)]


def test_members_before_the_damaged_one_stay(tmp):
    parts = members()
    packs = [gzip.compress(part, mtime=0) for part in parts]
    (tmp / "good").write_bytes(b"".join(parts[:2]))
    want = imported(tmp / "good", tmp / "expected")
    third = bytearray(packs[2])
    third[len(third) // 2] ^= 16
    (tmp / "bad.gz").write_bytes(packs[0] + packs[1] + third + packs[3])
    with pytest.raises(CorruptSource, match=r"bad\.gz"):
        ingest.run(FORMAT, [tmp / "bad.gz"], tmp / "archive")
    assert imported(tmp / "bad.gz", tmp / "archive") == want


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_file_that_was_cut_gives_what_is_there(tmp, kind):
    data = packed(tmp, kind).read_bytes()
    (tmp / "cut").write_bytes(data[:-3])  # of the checksum or length
    source = SourceFile(tmp / "cut")
    assert isinstance(source.check().damage, EOFError)
    lines = source.lines()
    for number, line in enumerate(TEXT.splitlines(), 1):
        assert next(lines) == (number, line)
    with pytest.raises(CorruptSource, match="truncated or damaged"):
        next(lines)


def test_a_stream_that_misses_its_end_by_damage_gives_nothing(tmp):
    """The last block is not marked as the last: its trailer is read as another block."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = bytearray(packer.compress(TEXT) + packer.flush())
    assert data[10] & 1, "one block, the last"
    data[10] ^= 1
    (tmp / "bad.gz").write_bytes(data)
    source = SourceFile(tmp / "bad.gz")
    assert source.check().damage is not None
    assert source.check().size == 0


def test_a_check_is_reported_and_counted_from_the_start_again(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.source._REPORTED_BYTES", 100)
    source = SourceFile(packed(tmp, "gz"))
    seen = []
    source.check(seen.append)
    assert seen
    assert seen == sorted(seen)
    assert source.read_bytes == 0
