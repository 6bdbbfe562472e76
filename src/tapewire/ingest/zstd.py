"""zstd files as a stream, read with the optional package zstandard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidOption
from tapewire.ingest.unpacking import UnpackedReader

if TYPE_CHECKING:
    import io

__all__ = ["ZSTD_MAGIC", "ZstdReader"]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A block of 128 KiB may be compressed to four bytes: this bounds the output of one step. Real files
# expand a thousand times less.
_STEP_BYTES = 2048
_MAX_WINDOW_BYTES = 1 << 27


class ZstdReader(UnpackedReader):
    """zstd, frame after frame. A frame's own checksum is optional; if it has one it is compared.

    The error of damage is an `EOFError` if the last frame is truncated, a `ValueError` if a frame
    is damaged.

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
        super().__init__()
        self._packed = packed
        self._codec = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._damage = zstandard.ZstdError
        self._frame: Any = None
        self._left = b""  # after the end of a frame

    def more(self) -> bytes | None:
        """The next bytes."""
        piece = self._left or self._packed.read(_STEP_BYTES)
        self._left = b""
        if not piece:
            if self._frame is not None:
                raise EOFError("the last zstd frame is truncated")
            return None
        if self._frame is None:
            self._frame = self._codec.decompressobj()
        try:
            made: bytes = self._frame.decompress(piece)
        except self._damage as error:
            raise ValueError(str(error)) from error
        self.made_bytes += len(made)
        if self._frame.eof:
            self._left, self._frame = self._frame.unused_data, None
            self.checked_bytes = self.made_bytes
        return made
