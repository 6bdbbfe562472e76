"""Checks LOBSTER's order book against its messages: each row must follow from the previous one.

A file has only the messages of the best levels, and lacks orders that rested before it begins: a
book rebuilt from it is incomplete, but every step from row to row can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest.tables import TableBlock, TableColumn, bare_blocks

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["OrderbookCheck", "valid_steps"]

_Array = np.ndarray[Any, Any]
_NO_LEVEL = 1 << 62  # higher than every price: an empty level
_SIGN = np.array([0, 1, -1, -1, -1, 0, 0, 0])  # how a message of each type changes a level's size
_WRONG = "not the previous row changed by the message"
_FIELDS = ("ask price", "ask size", "bid price", "bid size")
MAX_LEVELS = 1_000


def valid_steps(before: _Array, after: _Array, buys: _Array, price: _Array, by: _Array) -> _Array:
    """Which rows of `after` equal those of `before` with `by` shares added at a price of a side.

    Args:
        before: Rows with price and size of the ask, then of the bid, for each level: an array of
            rows, levels, and these four.
        after: The rows that follow them.
        buys: Whether the side is the bids, for each row.
        price: The price, for each row.
        by: The shares added; 0 if nothing changes.
    """
    rows, levels = before.shape[:2]
    of_side, at = buys.astype(int)[:, None], np.arange(levels)
    sides_before, sides_after = (array.reshape(rows, levels, 2, 2) for array in (before, after))
    row = np.arange(rows)[:, None]
    other_same = (
        (sides_before[row, at, 1 - of_side] == sides_after[row, at, 1 - of_side])
        .reshape(rows, -1)
        .all(axis=1)
    )
    sign = np.where(buys, -1, 1)
    old, new = (
        _better_first(sides[row, at, of_side], sign) for sides in (sides_before, sides_after)
    )
    key = price * sign
    place = (old[..., 0] < key[:, None]).sum(axis=1)
    # One more level after those shown: it is empty if fewer levels are shown than fit.
    full = old[:, -1, 1] > 0
    padded = np.concatenate([old, np.full((rows, 1, 2), (_NO_LEVEL, 0))], axis=1)
    exists = padded[row[:, 0], place, 0] == key
    size = np.where(exists, padded[row[:, 0], place, 1], 0) + by
    shown = place < levels
    inserted = shown & ~exists & (by > 0)
    removed = shown & exists & (size == 0)
    source = at[None, :] + removed[:, None] * (at >= place[:, None])
    source = source - inserted[:, None] * (at > place[:, None])
    expected = padded[row, source]
    changed = (shown & (size > 0))[:, None] & (at == place[:, None])
    expected[..., 0] = np.where(changed, key[:, None], expected[..., 0])
    expected[..., 1] = np.where(changed, size[:, None], expected[..., 1])
    same = (expected == new).all(axis=2)
    same |= (removed & full)[:, None] & (at == levels - 1)  # was not shown before: may be anything
    impossible = shown & (size < 0)
    valid: _Array = same.all(axis=1) & other_same & ~impossible
    return valid


def _better_first(levels: _Array, sign: _Array) -> _Array:
    """Prices of one side, negated so that better ones are smaller; empty levels come last."""
    keyed = levels.copy()
    empty = levels[..., 1] == 0
    keyed[..., 0] = np.where(empty, _NO_LEVEL, levels[..., 0] * sign[:, None])
    return keyed


class OrderbookCheck:
    """Reads a file of the order book along with its messages."""

    def __init__(self, source: SourceFile, report: Report) -> None:
        self._source = source
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
        self._block = next(self._blocks, None)
        self._messages = np.zeros((0, 4), np.int64)  # line, whether it buys, price, shares added
        self._before = (0, np.zeros((1, fields // 4, 4), np.int64))  # the last row, and its line
        self._last_message = 0

    def follow(self, messages: TableBlock, price_factor: int, size_factor: int) -> None:
        """Check the rows of the next messages."""
        types = np.where((messages["type"] > 0) & (messages["type"] < 8), messages["type"], 0)
        columns = [
            messages.line,
            messages["direction"] > 0,
            messages["price"] // price_factor,
            messages["size"] // size_factor * _SIGN[types],
        ]
        self._messages = np.concatenate([self._messages, np.stack(columns, axis=1)])
        self._last_message = int(messages.line[-1])
        while self._block is not None and self._block.line[-1] <= self._last_message:
            self._next_block()

    def finish(self) -> None:
        """Check that no message is left without a row."""
        while self._block is not None:
            self._next_block()
        if len(self._messages):
            self._report.bad(
                self._source,
                self._before[0] + 1,
                b"",
                "messages without a row of the order book",
                f"messages={len(self._messages)}",
            )

    def _next_block(self) -> None:
        """Check the rows of a block, the first one against the last row of the previous block."""
        assert self._block is not None
        block = self._block
        self._block = next(self._blocks, None)
        block = block.without(
            block.line > self._last_message, self._report, "a row without a message"
        )
        if not len(block):
            return
        rows = np.stack([block[name] for name in self._names], axis=1).reshape(len(block), -1, 4)
        line, row = self._before
        before = np.concatenate([row if line else rows[:1], rows[:-1]])
        at = np.searchsorted(self._messages[:, 0], block.line)
        checked = at < len(self._messages)
        of = np.zeros((len(block), 4), np.int64)
        of[checked] = self._messages[at[checked]]
        # Rows and messages that could not be parsed are reported already.
        checked = of[:, 0] == block.line
        checked &= np.concatenate([[line], block.line[:-1]]) == block.line - 1
        checked &= block.line > 1
        valid = valid_steps(before, rows, of[:, 1] != 0, of[:, 2], of[:, 3])
        block.without(checked & ~valid, self._report, _WRONG)
        self._before = (int(block.line[-1]), rows[-1:])
        self._messages = self._messages[self._messages[:, 0] > block.line[-1]]
