"""zstd files as a stream, by the package zstandard, which need not be there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ZSTD_MAGIC", "ZstdReader"]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A block of 128 KiB may have four bytes: so much comes out of one step at most, a thousandfold less
# out of any file that somebody means to be read.
_STEP_BYTES = 2048
_MAX_WINDOW_BYTES = 1 << 27


class ZstdReader(io.RawIOBase):
    """Decompressed bytes as they come, frame after frame.

    What lies before a damage is given before its error: an `EOFError` where the last frame has no
    end, a `ValueError` where one is damaged.

    Raises:
        InvalidOption: The package is not there.
    """

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise InvalidOption(
                "a zstd file needs a package that is not there: package=zstandard",
                hint="pip install zstandard",
            ) from error
        self._packed = packed
        self._codec = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._damage = zstandard.ZstdError
        self._frame: Any = None
        self._ready = memoryview(b"")
        self._left = b""  # behind a frame's end

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """The next bytes; 0 at the end."""
        into = memoryview(buffer).cast("B")
        while not self._ready:
            piece = self._left or self._packed.read(_STEP_BYTES)
            self._left = b""
            if not piece:
                if self._frame is not None:
                    raise EOFError("the last zstd frame has no end")
                return 0
            if self._frame is None:
                self._frame = self._codec.decompressobj()
            try:
                self._ready = memoryview(self._frame.decompress(piece))
            except self._damage as error:
                raise ValueError(str(error)) from error
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        count = min(len(into), len(self._ready))
        into[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
