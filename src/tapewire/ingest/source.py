"""Files to import: plain, gzip, zstd, or a member of a zip; read as a stream."""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tapewire.errors import CorruptSource, InvalidOption
from tapewire.ingest.unpacking import GZIP_MAGIC, GzipReader, UnpackedReader, ZipReader
from tapewire.ingest.zstd import ZSTD_MAGIC, ZstdReader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["BOM", "MAX_LINE_BYTES", "Content", "SourceFile"]

MAX_LINE_BYTES = 64 << 20  # a REST snapshot of a deep book has several megabytes
_PIECE = 1 << 20
_REPORTED_BYTES = 64 << 20
BOM = b"\xef\xbb\xbf"
# Raised when a damaged file is read; RuntimeError if a member is encrypted, or compressed by an
# unknown method.
_DAMAGE = (
    EOFError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Content(NamedTuple):
    """What a complete pass over a file found.

    Attributes:
        sha256: SHA-256 of the decompressed content, in hex; of the file on disk if it is damaged.
        size: Its bytes before the damage, if there is some.
        lines: Its line ends.
        damage: The error, if the file is truncated or damaged.
    """

    sha256: str
    size: int
    lines: int
    damage: Exception | None = None


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
        self._content: Content | None = None
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
        return self._on_disk().sha256

    def _on_disk(self) -> Content:
        with self._disk() as disk:
            found = self._hashed(disk)
        self.read_bytes = 0
        return found

    def _hashed(
        self,
        file: io.RawIOBase | io.BufferedReader[Any],
        progress: Callable[[int], None] | None = None,
    ) -> Content:
        digest, size, lines, reported = hashlib.sha256(), 0, 0, 0
        piece = bytearray(_PIECE)
        while count := file.readinto(piece):
            digest.update(memoryview(piece)[:count])
            size += count
            lines += piece.count(b"\n", 0, count)
            if progress is not None and self.read_bytes - reported >= _REPORTED_BYTES:
                reported = self.read_bytes
                progress(reported)
        return Content(digest.hexdigest(), size, lines)

    def check(self, progress: Callable[[int], None] | None = None) -> Content:
        """Read the file once, up to its end or to where it is damaged.

        From then on `open` returns only bytes that are known to be those of the undamaged file. Of
        a gzip, zip or zstd file these are the members, or frames, whose checksum is correct; if the
        file was cut off, also the bytes before the cut.

        Args:
            progress: Called now and then with the bytes read on disk.
        """
        if self._content is None:
            self._content = self._checked(progress)
            self.read_bytes = 0
        return self._content

    def _checked(self, progress: Callable[[int], None] | None) -> Content:
        file: Any = None
        try:
            with self._unpacked() as file:
                return self._hashed(file, progress)
        except (CorruptSource, InvalidOption):  # the latter is also a ValueError, but not damage
            raise
        except _DAMAGE as error:
            size = 0
            if isinstance(file, UnpackedReader):
                cut = isinstance(error, EOFError) and file.is_cut()
                size = file.made_bytes if cut else file.checked_bytes
            return self._on_disk()._replace(size=size, damage=error)

    @contextlib.contextmanager
    def open(self) -> Iterator[io.BufferedReader[Any]]:
        """The decompressed content, from the start.

        Raises:
            CorruptSource: While it is read: the file is truncated or damaged.
        """
        self.read_bytes = 0
        content = self._content
        with self._damage_named(), self._unpacked() as file:
            if content is not None and content.damage is not None:
                yield io.BufferedReader(_UpToDamage(file, content.size, content.damage), _PIECE)
            elif isinstance(file, UnpackedReader):
                yield io.BufferedReader(file, _PIECE)
            else:
                yield file

    @contextlib.contextmanager
    def _unpacked(self) -> Iterator[UnpackedReader | io.BufferedReader[Any]]:
        with self._disk() as counted:
            if self.member is not None:
                with zipfile.ZipFile(counted) as archive, archive.open(self.member) as inner:
                    yield ZipReader(cast(zipfile.ZipExtFile, inner))
            elif counted.peek(2)[:2] == GZIP_MAGIC:
                yield GzipReader(counted)
            elif counted.peek(4)[:4] == ZSTD_MAGIC:
                yield ZstdReader(counted)
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
                hint="what comes before the damage was imported, of packed data the members before "
                "it; get the complete file and import it into a new archive",
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


class _UpToDamage(io.RawIOBase):
    """The first bytes of a file, then the error that follows them."""

    def __init__(self, file: io.RawIOBase | io.BufferedReader[Any], size: int, damage: Exception):
        self._file = file
        self._left = size
        self._damage = damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        into = memoryview(buffer).cast("B")
        count = self._file.readinto(into[: self._left]) if self._left else 0
        if not count:
            raise self._damage
        self._left -= count
        return count
