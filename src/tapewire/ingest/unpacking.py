"""Packed files as streams that know which of their bytes were checked."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zipfile

    from _typeshed import WriteableBuffer

__all__ = ["GZIP_MAGIC", "GzipReader", "UnpackedReader", "ZipReader"]

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20
_NEAR = 1 << 20  # by how much a damaged member's length may differ from the one in its trailer


class UnpackedReader(io.RawIOBase):
    """Decompressed bytes as they come; those before damage are returned before its error.

    Attributes:
        made_bytes: Decompressed so far.
        checked_bytes: Of these, the bytes up to the end of the last complete member: its checksum,
            if the format has one, was correct.
    """

    def __init__(self) -> None:
        self.made_bytes = 0
        self.checked_bytes = 0
        self._ready = memoryview(b"")

    def more(self) -> bytes | None:
        """The next bytes, which may be none yet; None at the end.

        Raises:
            EOFError: The last member ends early.
        """
        raise NotImplementedError

    def is_cut(self) -> bool:
        """Whether the file, if it ends early, was cut, and its bytes are as they were before.

        If not, a damaged byte may have made it look like that.
        """
        return True

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """The next bytes; 0 at the end."""
        into = memoryview(buffer).cast("B")
        while not self._ready:
            made = self.more()
            if made is None:
                return 0
            self._ready = memoryview(made)
        count = min(len(into), len(self._ready))
        into[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class GzipReader(UnpackedReader):
    """gzip, member after member; zlib compares the checksum and length of each."""

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        super().__init__()
        self._packed = packed
        self._member: Any = None
        self._left = b""  # packed bytes that were read
        self._tail = b""  # the last four packed bytes

    def more(self) -> bytes | None:
        """The next bytes."""
        piece = self._left or self._packed.read(_PIECE)
        if not self._left:
            self._tail = (self._tail + piece)[-4:]
        self._left = b""
        if self._member is None:
            if self.made_bytes or self.checked_bytes:
                piece = piece.lstrip(b"\0")  # padding after a member, as gzip allows
            if not piece:
                return b"" if self._tail and self._packed.peek(1) else None
            self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        made: bytes = self._member.decompress(piece, _PIECE)
        self.made_bytes += len(made)
        if self._member.eof:
            self._left, self._member = self._member.unused_data, None
            self.checked_bytes = self.made_bytes
        elif not made and not piece:
            raise EOFError("the last gzip member ends early")
        else:
            self._left = self._member.unconsumed_tail
        return made

    def is_cut(self) -> bool:
        """A cut file does not end with its length; a complete one does, whatever is damaged."""
        length = self.made_bytes - self.checked_bytes
        distance = (int.from_bytes(self._tail, "little") - length) % 2**32
        return min(distance, 2**32 - distance) > _NEAR


class ZipReader(UnpackedReader):
    """A member of a zip, whose checksum is compared at its end."""

    def __init__(self, inner: zipfile.ZipExtFile) -> None:
        super().__init__()
        self._inner = inner

    def more(self) -> bytes | None:
        """The next bytes."""
        made = self._inner.read1(_PIECE)
        self.made_bytes += len(made)
        if made:
            return made
        self.checked_bytes = self.made_bytes
        return None

    def is_cut(self) -> bool:
        """Never: the directory at the end of the zip was read."""
        return False
