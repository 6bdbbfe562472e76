"""Files to import: plain, gzip, zstd, or a member of a zip; read as a stream."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tapewire.errors import CorruptSource, InvalidOption
from tapewire.ingest.zstd import ZSTD_MAGIC, ZstdReader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["BOM", "MAX_LINE_BYTES", "SourceFile"]

MAX_LINE_BYTES = 64 << 20  # a REST snapshot of a deep book has several megabytes
_PIECE = 1 << 20
BOM = b"\xef\xbb\xbf"
# Raised when a damaged file is read; RuntimeError if a member is encrypted, or compressed by an
# unknown method.
_DAMAGE = (
    EOFError,
    RuntimeError,
    ValueError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class SourceFile:
    r"""One file to import, or one member of a zip.

    A path ``day.zip!orders.txt`` names a member; a zip with one member needs no name. Whether a
    file is gzip or zstd is detected from its first bytes, not from its name; zstd needs the package
    zstandard.

    Attributes:
        path: The file.
        member: The member of the zip, or None.
        name: Its name in messages: the file's name, and the member's.
        size: Size on disk, compressed. What is appended to the file later is not read.
        read_bytes: Number of bytes on disk read so far.
        index: Its position among the files of the import.

    Example:
        >>> path = tmp / "a.txt"
        >>> _ = path.write_bytes(b"one\ntwo")
        >>> list(SourceFile(path).lines())
        [(1, b'one'), (2, b'two')]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        member = None
        if not os.path.lexists(text) and "!" in text:
            text, _, member = text.rpartition("!")
        self.path = Path(text)
        status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptSource(
                f"not a regular file: mode={stat.filemode(status.st_mode)}",
                path=text,
                hint="give the files themselves",
            )
        self.size = status.st_size
        self._seen = status
        self.index = 0
        self.read_bytes = 0
        self.member = member
        if self._is_zip():
            self.member = self._member()
        elif member is not None:
            raise CorruptSource(f"not a zip file: member={member}", path=text)
        self.name = self.path.name if self.member is None else f"{self.path.name}!{self.member}"

    def __repr__(self) -> str:
        return f"SourceFile({self.name!r}, {self.size} bytes)"

    def digest(self) -> str:
        """SHA-256 of the file on disk, in hex."""
        digest = hashlib.sha256()
        with self._disk() as disk:
            while piece := disk.read(_PIECE):
                digest.update(piece)
        self.read_bytes = 0
        return digest.hexdigest()

    @contextlib.contextmanager
    def open(self) -> Iterator[io.BufferedReader[Any]]:
        """The decompressed content, from the start.

        Raises:
            CorruptSource: While it is read: the file is truncated or damaged.
        """
        self.read_bytes = 0
        with self._disk() as counted, self._damage_named():
            if self.member is not None:
                with zipfile.ZipFile(counted) as archive, archive.open(self.member) as inner:
                    yield io.BufferedReader(_Piecewise(cast(zipfile.ZipExtFile, inner)), _PIECE)
            elif counted.peek(2)[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=counted) as unpacked:
                    yield io.BufferedReader(_Piecewise(unpacked), _PIECE)
            elif counted.peek(4)[:4] == ZSTD_MAGIC:
                yield io.BufferedReader(ZstdReader(counted), _PIECE)
            else:
                yield counted

    def check_content(self) -> None:
        """Check that there is any: an empty file is what a failed download leaves.

        Raises:
            CorruptSource: The file is empty.
        """
        try:
            with self.open() as file:
                empty = not file.peek(1)
        except CorruptSource:
            return  # raised again when the file is read
        if empty:
            raise CorruptSource(
                "the file is empty",
                path=os.fspath(self.path),
                hint="get the complete file, or import the others without it",
            )

    def lines(self) -> Generator[tuple[int, bytes], None, None]:
        """Each line: its number, from 1, and its bytes without the newline (or CR and newline).

        A byte order mark at the start of the file is removed.

        Of a line of `MAX_LINE_BYTES` or more, only that many bytes are yielded: it is a bad row,
        even if they look like a complete one.

        Raises:
            CorruptSource: The file is truncated or damaged; lines before the damage come first.
        """
        with self.open() as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                rest = line
                while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_LINE_BYTES)
                if rest is line:
                    line = line.rstrip(b"\r\n")
                yield number, line.removeprefix(BOM) if number == 1 else line

    @contextlib.contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except InvalidOption:  # also a ValueError, but not damage
            raise
        except _DAMAGE as error:
            raise CorruptSource(
                f"the file is truncated or damaged: {error}",
                path=os.fspath(self.path),
                hint="the records before the damage were imported; get the complete file and "
                "import it into a new archive",
            ) from error

    @contextlib.contextmanager
    def _disk(self) -> Iterator[io.BufferedReader[Any]]:
        """The bytes on disk, up to the size that the file had when the import began."""
        with open(self.path, "rb") as disk:
            now, then = os.fstat(disk.fileno()), self._seen
            written = now.st_mtime_ns != then.st_mtime_ns and now.st_size <= then.st_size
            if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino) or written:
                raise CorruptSource(
                    f"the file has changed since the import began: "
                    f"size={now.st_size}, size_then={then.st_size}",
                    path=os.fspath(self.path),
                    hint="import a file that is no longer written to, into a new archive",
                )
            yield io.BufferedReader(_Counted(disk, self), _PIECE)

    def _is_zip(self) -> bool:
        with open(self.path, "rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")

    def _member(self) -> str:
        with self._damage_named(), zipfile.ZipFile(self.path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if self.member is None and len(names) == 1:
            return names[0]
        if self.member not in names:
            raise CorruptSource(
                f"no such member of the zip: member={self.member}, "
                f"it has {', '.join(names) or 'none'}",
                path=os.fspath(self.path),
                hint=f"name it: {self.path.name}!MEMBER",
            )
        return self.member


class _Counted(io.RawIOBase):
    """A file on disk up to the size it had; counts the bytes read."""

    def __init__(self, disk: io.BufferedReader, source: SourceFile) -> None:
        self._disk = disk
        self._source = source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._disk.seek(self._source.size + offset)
        return self._disk.seek(offset, whence)

    def tell(self) -> int:
        return self._disk.tell()

    def readinto(self, buffer: WriteableBuffer) -> int:
        into = memoryview(buffer).cast("B")
        left = max(self._source.size - self._disk.tell(), 0)
        count = self._disk.readinto(into[:left])
        self._source.read_bytes = min(self._source.read_bytes + count, self._source.size)
        return count


class _Piecewise(io.RawIOBase):
    """Decompressed bytes as they come: those before damage are returned before its error."""

    def __init__(self, inner: gzip.GzipFile | zipfile.ZipExtFile) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        into = memoryview(buffer).cast("B")
        piece = self._inner.read1(len(into))
        into[: len(piece)] = piece
        return len(piece)
