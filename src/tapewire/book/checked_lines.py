"""Lines of JSON with a checksum, for small files that must survive crashes."""

from __future__ import annotations

import json
import zlib
from typing import Any

from tapewire.protocol.json_file import decode

__all__ = ["MAX_LINE_BYTES", "seal", "unseal"]

MAX_LINE_BYTES = 16384  # more than a gap whose five texts are completely escaped
_HEAD = b'{"crc":"'
_END = b'",'


def seal(table: dict[str, Any]) -> bytes:
    r"""Encode a dict as a line of JSON whose first member, `crc`, is the checksum of the rest.

    Example:
        >>> seal({"v": 1})
        b'{"crc":"84dbe73d","v":1}\n'
    """
    body = json.dumps(table, separators=(",", ":")).encode()
    return b"%s%08x%s" % (_HEAD, zlib.crc32(body), _END) + body[1:] + b"\n"


def unseal(line: bytes) -> dict[str, Any]:
    """Decode a line to a dict without `crc`; an invalid line raises ValueError.

    Example:
        >>> unseal(b'{"crc":"00000000","v":1}')
        Traceback (most recent call last):
        ValueError: does not match its checksum
    """
    line = line.removesuffix(b"\n")
    start = len(_HEAD)
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"line too long: max={MAX_LINE_BYTES} bytes")
    if line[:start] != _HEAD or line[start + 8 : start + 10] != _END:
        raise ValueError('does not start with a checksum, {"crc":"…"')
    body = b"{" + line[start + 10 :]
    if b"%08x" % zlib.crc32(body) != line[start : start + 8]:
        raise ValueError("does not match its checksum")
    # The checksum is valid, but another program may have written the line.
    table = decode(body)
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")
    return table
