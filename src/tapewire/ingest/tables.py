"""Text tables as blocks of integer columns: the native parser over a `SourceFile`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    "field_count": "another number of fields than the header has",
    "empty": "no value where one is needed",
    "not_a_number": "not a number",
    "too_precise": "more decimals than the scale has",
    "out_of_range": "does not fit 64 bits at this scale",
    "unknown_word": "not one of the known words",
    "not_a_time": "not a time",
    "not_a_pair": "not key=value",
    "repeated_key": "a key twice",
}
_OF_THE_LINE = ("field_count", "not_a_pair")
_REMEDIES = {
    "too_precise": "; import with a higher scale",
    "out_of_range": "; import with a lower scale",
}


@dataclass(frozen=True)
class TableColumn:
    """One column to read: `kind` as in rows.hpp.

    Attributes:
        name: In the header, or the key.
        kind: How its text is read.
        scale: Decimals of a number.
        optional: An empty field is `MISSING` instead of a bad row.
        absent: The whole column may be missing from the file; it is `MISSING` then.
        words: What a column of words may hold; its value is the place in this list.
    """

    name: str
    kind: str = "decimal"
    scale: int = 0
    optional: bool = False
    absent: bool = False
    words: tuple[str, ...] = ()


class TableBlock:
    """Rows of one piece of a file, and the bytes they were parsed from."""

    def __init__(
        self,
        source: SourceFile,
        data: bytes,
        rows: _Ints,
        columns: dict[str, int],
        texts: list[bytes],
    ) -> None:
        self.source = source
        self.rows = rows
        self.texts = texts
        self._data = data
        self._columns = columns

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> _Ints:
        """A column; all `MISSING` where the file has none of that name."""
        place = self._columns.get(name)
        if place is None:
            return np.full(len(self.rows), MISSING, np.int64)
        return self.rows[:, _FIELDS_BEFORE + place]

    @property
    def line(self) -> _Ints:
        """The line of each row, from 1."""
        return self.rows[:, 0]

    def where(self, mask: np.ndarray[Any, Any]) -> TableBlock:
        """Only the rows of a mask."""
        return TableBlock(self.source, self._data, self.rows[mask], self._columns, self.texts)

    def without(self, mask: np.ndarray[Any, Any], report: Report | None, why: str) -> TableBlock:
        """The other rows; those of the mask are kept aside as bad ones."""
        if not mask.any():
            return self
        if report is not None:
            for line, offset, length in self.rows[mask, :_FIELDS_BEFORE].tolist():
                report.bad(self.source, line, self._data[offset : offset + length], why)
        return self.where(~mask)

    def text(self, name: str) -> list[bytes]:
        """A column of text, as text."""
        return [self.texts[number] for number in self[name].tolist()]


def pieces(source: SourceFile) -> Iterator[bytes]:
    """The content in pieces of about `PIECE_BYTES`, then an empty one.

    Before damage is raised, what lies before it is given.
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
        CorruptSource: There is none.
    """
    with source.open() as file:
        line = file.readline(PIECE_BYTES)
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text or len(line) == PIECE_BYTES:
        raise CorruptSource(
            f"the first line has no names of columns: line={line[:60]!r}",
            path=str(source.path),
            hint="give a CSV file with its header",
        )
    return [name.strip().strip('"') for name in text.split(",")]


def csv_blocks(
    source: SourceFile, columns: Sequence[TableColumn], report: Report | None
) -> Iterator[TableBlock]:
    """The rows of a CSV file, its columns found by the names in the header; others are passed over.

    Bad rows go to the report. Without one (a first look) they are passed over.

    Raises:
        CorruptSource: Columns are missing, or are there twice; or the file is damaged.
    """
    header = csv_header(source)
    missing = [c.name for c in columns if not c.absent and c.name not in header]
    if missing:
        raise CorruptSource(
            f"columns are missing: missing={', '.join(missing)}; has={', '.join(header[:40])}",
            path=str(source.path),
            hint="give a file of this kind, with its header",
        )
    twice = [c.name for c in columns if header.count(c.name) > 1]
    if twice:
        raise CorruptSource(f"columns are there twice: {', '.join(twice)}", path=str(source.path))
    present = [c for c in columns if c.name in header]
    places = {column.name: i for i, column in enumerate(present)}
    parser = _parser(present)
    parser.set_fields([places.get(name, SKIP) for name in header])
    yield from _blocks(source, parser, places, report, header=True)


def bare_blocks(
    source: SourceFile, columns: Sequence[TableColumn], report: Report | None, further: int = 0
) -> Iterator[TableBlock]:
    """The rows of a CSV file without a header: the columns are its first fields.

    Up to `further` fields behind them, as many as the first line has, are passed over.
    """
    with source.open() as file:
        fields = file.readline(PIECE_BYTES).count(b",") + 1
    parser = _parser(columns)
    more = min(max(fields - len(columns), 0), further)
    parser.set_fields([*range(len(columns)), *[SKIP] * more])
    places = {column.name: i for i, column in enumerate(columns)}
    yield from _blocks(source, parser, places, report)


def pair_blocks(
    source: SourceFile, columns: Sequence[TableColumn], report: Report | None
) -> Iterator[TableBlock]:
    """The lines of a file of key=value pairs; keys that a line does not have are `MISSING`."""
    parser = _parser(columns)
    parser.set_keys([column.name for column in columns])
    places = {column.name: i for i, column in enumerate(columns)}
    yield from _blocks(source, parser, places, report, pairs=True)


def _parser(columns: Sequence[TableColumn]) -> RowParser:
    return RowParser([(c.kind, c.scale, c.optional, c.words) for c in columns])


def _blocks(
    source: SourceFile,
    parser: RowParser,
    places: dict[str, int],
    report: Report | None,
    *,
    pairs: bool = False,
    header: bool = False,
) -> Iterator[TableBlock]:
    names = list(places)
    passing_over = "header" if header else ""  # the rest of a line that is none of the rows
    tail = b""
    first = True
    for piece in pieces(source):
        data = tail + piece
        tail = b""
        if first:  # a CSV's header is passed over with it
            data, first = data.removeprefix(BOM), False
        if passing_over:
            behind = data.find(b"\n") + 1
            if not behind:
                continue
            data = data[behind:]
            parser.line += passing_over == "header"
            passing_over = ""
        used, rows, bad = parser.parse(data, not piece, pairs)
        if report is not None:
            report.rows += len(rows) + len(bad)
            for line, offset, length, column, fault in bad:
                detail = "" if fault in _OF_THE_LINE else names[column] + _REMEDIES.get(fault, "")
                report.bad(source, line, data[offset : offset + length], _WHY[fault], detail)
        if len(rows):
            yield TableBlock(source, data, rows, places, parser.texts)
        tail = data[used:]
        if len(tail) > MAX_LINE_BYTES:
            parser.line += 1
            if report is not None:
                report.rows += 1
                report.bad(source, parser.line, tail, "a line without an end")
            tail, passing_over = b"", "line"
