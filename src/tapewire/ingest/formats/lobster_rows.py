"""Reads LOBSTER's order book with its messages: the rows, their times, and what contradicts them.

Rows have no times: the line connects a row with its message. If a row were missing in one of the
files, all later rows would have the time of another message; the check of each step shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest.formats.lobster_check import valid_steps
from tapewire.ingest.tables import TableBlock, TableColumn, bare_blocks

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["OrderbookRows", "PairedRows"]

_Array = np.ndarray[Any, Any]
_SIGN = np.array([0, 1, -1, -1, -1, 0, 0, 0])  # how a message of each type changes a level's size
_WRONG = "not the previous row changed by the message"
_CROSSED = "the best bid is not below the best ask"
_BACK = "the time of its message is before that of the previous one"
_LATE = "a row without a message"
_NEGATIVE = "a size below zero"
_UNFIT = "does not fit 64 bits at this scale"
_FIELDS = ("ask price", "ask size", "bid price", "bid size")
_MOST = np.iinfo(np.int64).max
_ABSENT = np.array([9_999_999_999, -9_999_999_999])  # prices of an ask and a bid that are not there
MAX_LEVELS = 1_000


class PairedRows(NamedTuple):
    """Rows of the order book with the times of their messages.

    Attributes:
        line: The line of each row, and of its message.
        time_ns: The time of the message; -1 if there is no valid message.
        levels: An array of rows, levels, and price and size of the ask, then of the bid. An absent
            level has size 0, and a price that is worse than any other.
        agrees: Whether nothing contradicts that the row is the previous one after the message.
    """

    line: _Array
    time_ns: _Array
    levels: _Array
    agrees: _Array

    def where(self, mask: _Array | slice) -> PairedRows:
        """The rows of a mask or slice."""
        return PairedRows(*(column[mask] for column in self))

    def followed_by(self, others: PairedRows) -> PairedRows:
        """These rows, then the others."""
        return PairedRows(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))


class OrderbookRows:
    """Reads a file of the order book along with its messages.

    Args:
        source: The file.
        price_factor: Units of a price in the archive for one in the file.
        size_factor: The same for sizes.
        report: Takes the rows that are rejected.

    Attributes:
        unmatched: The number of messages that have no row, because the file ends before them.
    """

    def __init__(
        self,
        source: SourceFile,
        price_factor: int,
        size_factor: int,
        report: Report,
    ) -> None:
        self.source = source
        self.unmatched = 0
        self._factors = (price_factor, size_factor)
        self._report = report
        with source.open() as file:
            fields = file.readline(MAX_LEVELS * 100).count(b",") + 1
        if fields % 4 or fields > 4 * MAX_LEVELS:
            raise CorruptSource(
                f"a row must have price and size of ask and bid for each level: fields={fields}",
                path=str(source.path),
                hint="give LOBSTER's file of the order book",
            )
        self._names = [f"{_FIELDS[i % 4]} of level {i // 4 + 1}" for i in range(fields)]
        columns = [TableColumn(name) for name in self._names]
        self._blocks: Iterator[TableBlock] = bare_blocks(source, columns, report)
        self._block: TableBlock | None = None
        self._before = (0, np.zeros((1, fields // 4, 4), np.int64))  # the last row, and its line
        self._last_message = 0
        self._last_ns = 0

    @property
    def none(self) -> PairedRows:
        """No rows."""
        empty = np.zeros(0, np.int64)
        return PairedRows(empty, empty, self._before[1][:0], empty.astype(bool))

    def follow(
        self, messages: TableBlock, times_ns: _Array, last_line: int
    ) -> Iterator[PairedRows]:
        """The rows of the next messages, which are in their file up to `last_line`."""
        columns = [
            messages.line,
            messages["direction"] > 0,
            messages["price"] // self._factors[0],
            messages["size"] // self._factors[1] * _SIGN[messages["type"]],
            times_ns,
            np.diff(times_ns, prepend=self._last_ns) < 0,
        ]
        self._last_ns = int(times_ns[-1]) if len(times_ns) else self._last_ns
        self._last_message = last_line
        for block in self._blocks_up_to(last_line):
            yield self._paired(block, np.stack(columns, axis=1))
        if self._block is None:
            self.unmatched += int((messages.line > self._before[0]).sum())

    def rest(self) -> Iterator[PairedRows]:
        """The rows after the last message: each is a bad row, and so are messages without a row."""
        for block in self._blocks_up_to(_MOST):
            yield self._paired(block, np.zeros((0, 6), np.int64))
        if self.unmatched:
            self._report.bad(
                self.source,
                self._before[0] + 1,
                b"",
                "messages without a row of the order book",
                f"messages={self.unmatched}",
            )

    def _blocks_up_to(self, line: int) -> Iterator[TableBlock]:
        """The next blocks of the file, the last one up to a line."""
        while True:
            if self._block is None:
                self._block = next(self._blocks, None)
            if self._block is None:
                return
            passed = self._block.line <= line
            block = self._block.where(passed)
            self._block = None if passed.all() else self._block.where(~passed)
            if len(block):
                yield block
            if self._block is not None:
                return

    def _paired(self, block: TableBlock, messages: _Array) -> PairedRows:
        """The rows of a block, the first one compared with the last row of the previous block.

        A message has its line, whether it buys, price, shares added, time, whether time goes back.
        """
        block, rows = self._valid(block)
        if not len(block):
            return self.none
        line, row = self._before
        before = np.concatenate([row if line else rows[:1], rows[:-1]])
        at = np.searchsorted(messages[:, 0], block.line)
        of = np.zeros((len(block), 6), np.int64)
        of[at < len(messages)] = messages[at[at < len(messages)]]
        # Rows and messages that could not be parsed are reported already.
        has_message = of[:, 0] == block.line
        checked = has_message & (np.concatenate([[line], block.line[:-1]]) == block.line - 1)
        checked &= block.line > 1
        wrong = checked & ~valid_steps(before, rows, of[:, 1] != 0, of[:, 2], of[:, 3])
        crossed = (rows[:, 0, [1, 3]] > 0).all(axis=1) & (rows[:, 0, 0] <= rows[:, 0, 2])
        agrees = np.ones(len(block), bool)
        for found, why in (
            (wrong, _WRONG),
            (crossed, _CROSSED),
            (of[:, 5] != 0, _BACK),
            (block.line > self._last_message, _LATE),
        ):
            block.without(found & agrees, self._report, why)
            agrees &= ~found
        self._before = (int(block.line[-1]), rows[-1:])
        return PairedRows(block.line, np.where(has_message, of[:, 4], -1), rows, agrees)

    def _valid(self, block: TableBlock) -> tuple[TableBlock, _Array]:
        """The valid rows, and their levels; the others are reported as bad."""
        rows = np.stack([block[name] for name in self._names], axis=1).reshape(len(block), -1, 2)
        prices, sizes = rows[..., 0], rows[..., 1]
        most_price, most_size = (_MOST // factor for factor in self._factors)
        unfit = (np.abs(prices) > most_price) & (sizes > 0) | (sizes > most_size)
        prices[sizes == 0] = np.resize(_ABSENT, rows.shape[1])[np.nonzero(sizes == 0)[1]]
        levels = rows.reshape(len(block), -1, 4)
        bad = np.zeros(len(block), bool)
        for found, why in ((sizes < 0, _NEGATIVE), (unfit, _UNFIT)):
            rejected: _Array = np.any(found, axis=1) & ~bad
            block.without(rejected, self._report, why)
            bad |= rejected
        return (block.where(~bad), levels[~bad]) if bad.any() else (block, levels)
