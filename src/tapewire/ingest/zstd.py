"""zstd files as a stream, read with the optional package zstandard."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ZSTD_MAGIC", "ZstdReader"]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A block of 128 KiB may be compressed to four bytes: this bounds the output of one step. Real files
# expand a thousand times less.
_STEP_BYTES = 2048
_MAX_WINDOW_BYTES = 1 << 27


class ZstdReader(io.RawIOBase):
    """Decompressed bytes as they come, frame after frame.

    The bytes before damage are returned before its error: an `EOFError` if the last frame is
    truncated, a `ValueError` if one is damaged.

    Raises:
        InvalidOption: The package is not installed.
    """

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise InvalidOption(
                "a zstd file needs a package that is not installed: package=zstandard",
                hint="pip install zstandard",
            ) from error
        self._packed = packed
        self._codec = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._damage = zstandard.ZstdError
        self._frame: Any = None
        self._ready = memoryview(b"")
        self._left = b""  # after the end of a frame

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
                    raise EOFError("the last zstd frame is truncated")
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
