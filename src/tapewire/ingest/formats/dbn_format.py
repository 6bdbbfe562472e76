"""Databento's binary encoding (DBN), versions 1 to 3: a header, then records with their lengths.

This module reads bytes; the importer interprets records. Every length is checked before it is used,
and bytes that cannot be read raise `CorruptSource` with their offset.
"""

from __future__ import annotations

import datetime as dt
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest.tables import pieces

if TYPE_CHECKING:
    from tapewire.ingest.source import SourceFile

__all__ = ["DTYPES", "HEAD_DTYPE", "DbnRun", "Header", "Interval", "RunReader", "mapped_symbol"]

_Array = np.ndarray[Any, Any]

MAGIC = b"DBN"
# A skippable frame of zstd, with which a DBZ file begins: the encoding before DBN.
DBZ_MAGICS = tuple(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))
VERSIONS = (1, 2, 3)
PREFIX_BYTES = 8
FIXED_BYTES = 100
V1_SYMBOL_BYTES = 22
MAX_HEADER_BYTES = 256 << 20
HEAD_BYTES = 16  # of every record
_CONVERT = "convert it with Databento's command dbn, or download it again as DBN 1 to 3"
_OTHER_FILE = "give a file of Databento, or name the format of this one"
TS_OUT_BYTES = 8  # after each record of a live session that requested it
INSTRUMENT_ID = 0  # a stype: symbols are numbers
SYMBOL_MAPPING = 0x16

_HEAD = [
    ("length", "u1"),
    ("rtype", "u1"),
    ("publisher_id", "<u2"),
    ("instrument_id", "<u4"),
    ("ts_event", "<u8"),
]
_MBO = [
    *_HEAD,
    ("order_id", "<u8"),
    ("price", "<i8"),
    ("size", "<u4"),
    ("flags", "u1"),
    ("channel_id", "u1"),
    ("action", "u1"),
    ("side", "u1"),
    ("ts_recv", "<u8"),
    ("ts_in_delta", "<i4"),
    ("sequence", "<u4"),
]
_TRADE = [
    *_HEAD,
    ("price", "<i8"),
    ("size", "<u4"),
    ("action", "u1"),
    ("side", "u1"),
    ("flags", "u1"),
    ("depth", "u1"),
    ("ts_recv", "<u8"),
    ("ts_in_delta", "<i4"),
    ("sequence", "<u4"),
]
_LEVEL = [
    ("bid_price", "<i8"),
    ("ask_price", "<i8"),
    ("bid_size", "<u4"),
    ("ask_size", "<u4"),
    ("bid_orders", "<u4"),
    ("ask_orders", "<u4"),
]
HEAD_DTYPE = np.dtype(_HEAD)
MBO, MBP_0, MBP_1, MBP_10 = 0xA0, 0x00, 0x01, 0x0A
DTYPES: dict[int, np.dtype[Any]] = {
    MBO: np.dtype(_MBO),
    MBP_0: np.dtype(_TRADE),
    MBP_1: np.dtype([*_TRADE, ("levels", _LEVEL, (1,))]),
    MBP_10: np.dtype([*_TRADE, ("levels", _LEVEL, (10,))]),
}


class Interval(NamedTuple):
    """The name of an instrument from day `first` to before day `end`, in days since 1970."""

    first: int
    end: int
    name: bytes


@dataclass
class Header:
    """The header of a file.

    Attributes:
        version: Version of the encoding.
        dataset: Code of the dataset, such as ``XNAS.ITCH``.
        schema: Kind of the records; 0xFFFF: several kinds.
        ts_out: Whether each record is followed by the time when it was sent.
        names: The names of each instrument, by its number.
    """

    version: int
    dataset: bytes
    schema: int
    ts_out: bool
    names: dict[int, list[Interval]] = field(default_factory=dict)
    _shared: set[bytes] | None = None

    def rename(self, number: int, name: bytes) -> None:
        """Give an instrument this name from here on, whatever the header contains."""
        self.names[number] = [Interval(0, 1 << 31, name)]
        self._shared = None

    def name_of(self, number: int, day: int) -> bytes:
        """The name of an instrument on a day; its number if it has no name.

        If several instruments have the same name on that day (all futures of a product), the number
        is a suffix.
        """
        if self._shared is None:
            self._shared = self._find_shared()
        for interval in self.names.get(number, ()):
            if interval.first <= day < interval.end:
                shared = interval.name in self._shared
                return b"%s.%d" % (interval.name, number) if shared else interval.name
        return b"%d" % number

    def _find_shared(self) -> set[bytes]:
        by_name = sorted(
            (interval.name, interval.first, interval.end, number)
            for number, intervals in self.names.items()
            for interval in intervals
        )
        shared = set()
        for (name, _, end, number), (other, first, _, another) in itertools.pairwise(by_name):
            if name == other and first < end and number != another:
                shared.add(name)
        return shared


class DbnRun(NamedTuple):
    """Consecutive records of one type and length."""

    rtype: int
    rows: _Array  # of bytes, one row for each record
    number: int  # position of the first record, from 1


class RunReader:
    """The records of one file.

    Attributes:
        header: The header; None until the first item of `runs` is read.
    """

    def __init__(self, source: SourceFile) -> None:
        self.header: Header | None = None
        self._source = source
        self._offset = 0
        self._records = 0

    def runs(self) -> Iterator[list[DbnRun]]:
        """The records of each piece of the file, in order.

        Raises:
            CorruptSource: Not a DBN file, damaged or truncated; the records before come first.
        """
        data = b""
        head = bytearray()  # grows in place: the names of a complete market take many pieces
        for piece in pieces(self._source):
            if self.header is None:
                head += piece
                used = self._header_of(head, last=not piece)
                if not used:
                    continue
                data = bytes(head[used:])
                head.clear()
                self._offset += used
            else:
                data += piece
            found, used, fault = self._frames(data)
            yield found
            data = data[used:]
            self._offset += used
            if fault:
                raise self._corrupt(fault, 0)
        if data:
            raise self._corrupt(
                f"the file ends within a record: bytes={len(data)}, length={data[0] * 4}", 0
            )

    def _frames(self, data: bytes) -> tuple[list[DbnRun], int, str]:
        """The complete records in `data`, their size in bytes, and the fault after them."""
        found: list[DbnRun] = []
        view: _Array = np.frombuffer(data, np.uint8)
        at = 0
        while at < len(data):
            size = 4 * data[at]
            if size < HEAD_BYTES:
                return found, at, f"a record is shorter than its head: length={size}"
            fit = (len(data) - at) // size
            if not fit:
                break
            count = _alike(view[at : at + fit * size].reshape(fit, size))
            rows = view[at : at + count * size].reshape(count, size)
            found.append(DbnRun(data[at + 1], rows, self._records + 1))
            self._records += count
            at += count * size
        return found, at, ""

    def _header_of(self, data: bytearray, *, last: bool) -> int:
        """Read the header; returns its length, or 0 if it is not complete yet."""
        start = bytes(data[:4])
        if start in DBZ_MAGICS:
            raise self._not_dbn("a DBZ file, the encoding before DBN", 0, _CONVERT)
        if not MAGIC.startswith(start[:3]) or (last and len(data) < PREFIX_BYTES):
            raise self._not_dbn(f"not a DBN file: it begins with {start!r}", 0, _OTHER_FILE)
        if len(data) < PREFIX_BYTES:
            return 0
        version, length = data[3], int.from_bytes(data[4:8], "little")
        if version not in VERSIONS:
            why = f"unsupported version: version={version}, must be 1 to 3"
            raise self._not_dbn(why, 3, _CONVERT)
        if not FIXED_BYTES + 4 <= length <= MAX_HEADER_BYTES:
            raise self._corrupt(f"invalid header length: length={length}", 4)
        end = PREFIX_BYTES + length
        if len(data) < end:
            if last:
                raise self._corrupt(
                    f"the file ends within its header: bytes={len(data)}, length={end}", len(data)
                )
            return 0
        self.header = self._parsed(version, bytes(data[:end]))
        return end

    def _parsed(self, version: int, data: bytes) -> Header:
        fixed = "<16sHQQQ" + ("Q" if version == 1 else "") + "BB?" + ("" if version == 1 else "H")
        values = struct.unpack_from(fixed, data, PREFIX_BYTES)
        symbol_bytes = V1_SYMBOL_BYTES if version == 1 else values[-1]
        if not 1 <= symbol_bytes <= 1024:
            raise self._corrupt(f"invalid symbol length: bytes={symbol_bytes}", PREFIX_BYTES)
        stype_in, stype_out, ts_out = values[-3:] if version == 1 else values[-4:-1]
        header = Header(version, values[0].rstrip(b"\0"), values[1], ts_out)
        fields = _Fields(data, PREFIX_BYTES + FIXED_BYTES)
        try:
            fields.skip(fields.count(1))  # a definition of the schema: never used
            for _ in ("symbols", "partial", "not_found"):
                fields.skip(fields.count(symbol_bytes) * symbol_bytes)
            for _ in range(fields.count(symbol_bytes + 4)):
                asked = fields.text(symbol_bytes)
                for _ in range(fields.count(8 + symbol_bytes)):
                    first, end = fields.day(), fields.day()
                    given = fields.text(symbol_bytes)
                    number, name = (given, asked) if stype_out == INSTRUMENT_ID else (asked, given)
                    if INSTRUMENT_ID not in (stype_in, stype_out) or not given:
                        continue  # no number of an instrument, or no name that day
                    if not number.isdigit() or len(number) > 10:
                        raise ValueError(f"invalid instrument number: {number[:40]!r}")
                    header.names.setdefault(int(number), []).append(Interval(first, end, name))
        except ValueError as error:
            raise self._corrupt(f"the header is damaged: {error}", fields.at) from None
        return header

    def _not_dbn(self, message: str, at: int, hint: str) -> CorruptSource:
        return CorruptSource(message, path=str(self._source.path), offset=at, hint=hint)

    def _corrupt(self, message: str, at: int) -> CorruptSource:
        return CorruptSource(
            message,
            path=str(self._source.path),
            offset=self._offset + at,
            hint="the records before were imported; get the complete file and import it into a new "
            "archive",
        )


def _alike(rows: _Array) -> int:
    """How many rows, from the first one on, begin with the same two bytes."""
    count, window = 1, 64
    while count < len(rows):
        heads = rows[count : count + window, :2]
        other = (heads != rows[0, :2]).any(axis=1)
        if other.any():
            return count + int(other.argmax())
        count += len(heads)
        window *= 2
    return count


class _Fields:
    """Reads the fields of a header; raises `ValueError` past its end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def skip(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise ValueError(f"bytes={size}, left={len(self._data) - self.at}")
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self) -> int:
        return int.from_bytes(self.skip(4), "little")

    def count(self, each: int) -> int:
        """A count of items of at least `each` bytes, checked against the bytes left."""
        count = self.number()
        if count * each > len(self._data) - self.at:
            raise ValueError(f"count={count}, left={len(self._data) - self.at}")
        return count

    def text(self, size: int) -> bytes:
        return self.skip(size).partition(b"\0")[0]

    def day(self) -> int:
        """A day YYYYMMDD, in days since 1970."""
        number = self.number()
        day = dt.date(number // 10_000, number // 100 % 100, number % 100)
        return (day - dt.date(1970, 1, 1)).days


def mapped_symbol(version: int, row: bytes) -> tuple[int, bytes] | None:
    """The instrument's number and name in a symbol mapping record; None if it has none."""
    size, first = (V1_SYMBOL_BYTES, HEAD_BYTES) if version == 1 else (71, HEAD_BYTES + 1)
    second = first + size + (version != 1)
    if len(row) < second + size:
        return None
    (number,) = struct.unpack_from("<I", row, 4)
    asked, given = (row[at : at + size].partition(b"\0")[0] for at in (first, second))
    name = asked if not given or given.isdigit() else given
    return (number, name) if name else None
