"""Text tables as blocks of integer columns: the native parser over a `SourceFile`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest._parsers import MISSING, SKIP, RowParser
from tapewire.ingest.source import BOM, MAX_LINE_BYTES, SourceFile

if TYPE_CHECKING:
    from tapewire.ingest.report import Report

__all__ = [
    "MISSING",
    "RowOwner",
    "TableBlock",
    "TableColumn",
    "bare_blocks",
    "csv_blocks",
    "csv_header",
    "pair_blocks",
    "pieces",
]

PIECE_BYTES = 1 << 20
_FIELDS_BEFORE = 3  # line, offset, length
_Ints = np.ndarray[Any, np.dtype[np.int64]]

_WHY = {
    "field_count": "wrong number of fields",
    "empty": "a required value is missing",
    "not_a_number": "not a number",
    "too_precise": "more decimals than the scale has",
    "out_of_range": "does not fit 64 bits at this scale",
    "unknown_word": "unknown word",
    "not_a_time": "not a time",
    "not_a_pair": "not key=value",
    "repeated_key": "duplicate key",
}
_OF_THE_LINE = ("field_count", "not_a_pair")
_REMEDIES = {
    "too_precise": "; import with a higher scale",
    "out_of_range": "; import with a lower scale",
}


@dataclass(frozen=True)
class TableColumn:
    """A column to read.

    Attributes:
        name: Its name in the header, or the key.
        kind: How its text is parsed; see rows.hpp.
        scale: Decimals of a number.
        optional: An empty field is `MISSING` instead of a bad row.
        absent: The file may lack the column; its values are `MISSING` then.
        words: The allowed words of a column of words; its values are indexes into this list.
    """

    name: str
    kind: str = "decimal"
    scale: int = 0
    optional: bool = False
    absent: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowOwner:
    """Whose book a row can change, for rows that are rejected.

    Attributes:
        column: The name of the column of text with the symbol.
        symbol: The directory name of a symbol; None if it has none.
        of_book: False if no row of the file changes a book.
    """

    column: str
    symbol: Callable[[bytes], str | None]
    of_book: bool = True


class TableBlock:
    """Rows of one piece of a file, and the bytes they were parsed from."""

    def __init__(
        self,
        source: SourceFile,
        data: bytes,
        rows: _Ints,
        columns: dict[str, int],
        texts: list[bytes],
        owner: RowOwner | None = None,
    ) -> None:
        self.source = source
        self.rows = rows
        self.texts = texts
        self._data = data
        self._columns = columns
        self._owner = owner

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> _Ints:
        """A column; all `MISSING` if the file has none of that name."""
        place = self._columns.get(name)
        if place is None:
            return np.full(len(self.rows), MISSING, np.int64)
        return self.rows[:, _FIELDS_BEFORE + place]

    @property
    def line(self) -> _Ints:
        """The line of each row, from 1."""
        return self.rows[:, 0]

    def where(self, mask: np.ndarray[Any, Any]) -> TableBlock:
        """The rows of a mask."""
        rows = self.rows[mask]
        return TableBlock(self.source, self._data, rows, self._columns, self.texts, self._owner)

    def without(
        self, mask: np.ndarray[Any, Any], report: Report | None, why: str, *, of_book: bool = True
    ) -> TableBlock:
        """The rows that are not in the mask; those in the mask are reported as bad."""
        if not mask.any():
            return self
        if report is not None:
            symbols = self._symbols(mask)
            of_book = of_book and (self._owner is None or self._owner.of_book)
            for i, (line, offset, length) in enumerate(self.rows[mask, :_FIELDS_BEFORE].tolist()):
                row = self._data[offset : offset + length]
                symbol = symbols[i] if symbols else None
                report.bad(self.source, line, row, why, symbol=symbol, of_book=of_book)
        return self.where(~mask)

    def _symbols(self, mask: np.ndarray[Any, Any]) -> list[str | None]:
        """The symbols of some rows; empty if the file has none."""
        owner = self._owner
        if owner is None or owner.column not in self._columns:
            return []
        codes = self[owner.column][mask].tolist()
        return [None if code == MISSING else owner.symbol(self.texts[code]) for code in codes]

    def text(self, name: str) -> list[bytes]:
        """The values of a column of text."""
        return [self.texts[number] for number in self[name].tolist()]


def pieces(source: SourceFile) -> Iterator[bytes]:
    """The content in pieces of about `PIECE_BYTES`, then an empty one.

    The bytes before damage are yielded before its error is raised.
    """
    with source.open() as file:
        gathered: list[bytes] = []
        size = 0
        while True:
            try:
                piece = file.read1(PIECE_BYTES)
            except Exception:
                if gathered:
                    yield b"".join(gathered)
                raise
            gathered.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES or (size and not piece):
                yield b"".join(gathered)
                gathered, size = [], 0
            if not piece:
                yield b""
                return


def csv_header(source: SourceFile) -> list[str]:
    """The names in the first line.

    Raises:
        CorruptSource: The first line has no names.
    """
    with source.open() as file:
        line = file.readline(PIECE_BYTES)
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text or len(line) == PIECE_BYTES:
        raise CorruptSource(
            f"the first line has no column names: line={line[:60]!r}",
            path=str(source.path),
            hint="give a CSV file with its header",
        )
    return [name.strip().strip('"') for name in text.split(",")]


def csv_blocks(
    source: SourceFile,
    columns: Sequence[TableColumn],
    report: Report | None,
    owner: RowOwner | None = None,
) -> Iterator[TableBlock]:
    """The rows of a CSV file with a header; other columns than those given are skipped.

    Bad rows go to the report; without one (in a first pass) they are skipped.

    Raises:
        CorruptSource: Columns are missing or duplicated, or the file is damaged.
    """
    header = csv_header(source)
    missing = [c.name for c in columns if not c.absent and c.name not in header]
    if missing:
        raise CorruptSource(
            f"columns are missing: missing={', '.join(missing)}; has={', '.join(header[:40])}",
            path=str(source.path),
            hint="give a file of this kind, with its header",
        )
    repeated = [c.name for c in columns if header.count(c.name) > 1]
    if repeated:
        raise CorruptSource(f"duplicate columns: {', '.join(repeated)}", path=str(source.path))
    present = [c for c in columns if c.name in header]
    places = {column.name: i for i, column in enumerate(present)}
    parser = _parser(present)
    parser.set_fields([places.get(name, SKIP) for name in header])
    find = _field_of_csv(header.index(owner.column), len(header)) if owner else None
    yield from _blocks(source, parser, places, report, owner=owner, find=find, header=True)


def bare_blocks(
    source: SourceFile, columns: Sequence[TableColumn], report: Report | None, further: int = 0
) -> Iterator[TableBlock]:
    """The rows of a CSV file without a header: the columns are its first fields.

    Up to `further` fields after them, as many as the first line has, are skipped.
    """
    with source.open() as file:
        fields = file.readline(PIECE_BYTES).count(b",") + 1
    parser = _parser(columns)
    more = min(max(fields - len(columns), 0), further)
    parser.set_fields([*range(len(columns)), *[SKIP] * more])
    places = {column.name: i for i, column in enumerate(columns)}
    yield from _blocks(source, parser, places, report)


def pair_blocks(
    source: SourceFile,
    columns: Sequence[TableColumn],
    report: Report | None,
    owner: RowOwner | None = None,
) -> Iterator[TableBlock]:
    """The lines of a file of key=value pairs; keys that a line lacks are `MISSING`."""
    parser = _parser(columns)
    parser.set_keys([column.name for column in columns])
    places = {column.name: i for i, column in enumerate(columns)}
    find = _field_of_pairs(owner.column) if owner else None
    yield from _blocks(source, parser, places, report, owner=owner, find=find, pairs=True)


def _field_of_csv(index: int, count: int) -> Callable[[bytes], bytes | None]:
    """Finds a field of a row; with another number of fields, it may be a different one."""

    def find(row: bytes) -> bytes | None:
        fields = row.split(b",")
        return fields[index].strip().strip(b'"') if len(fields) == count else None

    return find


def _field_of_pairs(key: str) -> Callable[[bytes], bytes | None]:
    """Finds the value of a key in a row of key=value pairs that may be damaged elsewhere.

    Not at the end of the row, where the value may be truncated.
    """
    pattern = re.compile(
        rb"(?:^|[^A-Za-z0-9_])" + key.encode() + rb"=([A-Za-z0-9._-]+)(?=[^A-Za-z0-9._-])"
    )

    def find(row: bytes) -> bytes | None:
        found = pattern.search(row)
        return found[1] if found else None

    return find


def _parser(columns: Sequence[TableColumn]) -> RowParser:
    return RowParser([(c.kind, c.scale, c.optional, c.words) for c in columns])


def _blocks(
    source: SourceFile,
    parser: RowParser,
    places: dict[str, int],
    report: Report | None,
    *,
    owner: RowOwner | None = None,
    find: Callable[[bytes], bytes | None] | None = None,
    pairs: bool = False,
    header: bool = False,
) -> Iterator[TableBlock]:
    names = list(places)
    skipping = "header" if header else ""  # the rest of a line that is not a row
    tail = b""
    first = True
    for piece in pieces(source):
        data = tail + piece
        tail = b""
        if first:
            data, first = data.removeprefix(BOM), False
        if skipping:
            after = data.find(b"\n") + 1
            if not after:
                continue
            data = data[after:]
            parser.line += skipping == "header"
            skipping = ""
        used, rows, bad = parser.parse(data, not piece, pairs)
        if report is not None:
            report.rows += len(rows) + len(bad)
            for line, offset, length, column, fault in bad:
                detail = "" if fault in _OF_THE_LINE else names[column] + _REMEDIES.get(fault, "")
                row = data[offset : offset + length]
                text = find(row) if find else None
                report.bad(
                    source,
                    line,
                    row,
                    _WHY[fault],
                    detail,
                    symbol=owner.symbol(text) if owner and text else None,
                    of_book=owner is None or owner.of_book,
                )
        if len(rows):
            yield TableBlock(source, data, rows, places, parser.texts, owner)
        tail = data[used:]
        if len(tail) > MAX_LINE_BYTES:
            parser.line += 1
            if report is not None:
                report.rows += 1
                report.bad(source, parser.line, tail, "line too long")
            tail, skipping = b"", "line"
