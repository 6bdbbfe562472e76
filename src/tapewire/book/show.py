"""A book for people: one line, and a small ladder for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tapewire.protocol.market import unscaled

if TYPE_CHECKING:
    from tapewire.book._native import Book, Level

_LADDER_LEVELS = 5


def summary(book: Book) -> str:
    """What `repr` says."""
    name = type(book).__name__

    def side(level: Level | None) -> str:
        if level is None:
            return "nothing"
        return (
            f"{unscaled(level.price, book.price_scale)} × {unscaled(level.size, book.size_scale)}"
        )

    def counted(count: int, word: str) -> str:
        return f"{count} {word}" if count == 1 else f"{count} {word}s"

    text = (
        f"{side(book.best_bid)} | {side(book.best_ask)}, {counted(book.level_count('bid'), 'bid')}, "
        f"{counted(book.level_count('ask'), 'ask')}"
    )
    if book.last_update:
        text += f", update {book.last_update}"
    if not book.trusted:
        text += f", untrusted: {book.distrust_reason}"
    return f"<{name} {text}>"


def ladder_html(book: Book) -> str:
    """A table of the best levels, asks above bids, each with a bar for its size."""
    asks, bids = book.asks(_LADDER_LEVELS)[::-1], book.bids(_LADDER_LEVELS)
    most = max([1, *asks["size"].tolist(), *bids["size"].tolist()])
    with_orders = "orders" in (bids.dtype.names or ())
    rows = []
    for levels, colour in ((asks, "#c0392b"), (bids, "#1e8449")):
        for level in levels:
            width = 100 * int(level["size"]) // most
            cells = (
                f'<td style="text-align:right;color:{colour}">{unscaled(int(level["price"]), book.price_scale)}</td>'
                f'<td style="text-align:right">{unscaled(int(level["size"]), book.size_scale)}</td>'
            )
            if with_orders:
                cells += f'<td style="text-align:right">{level["orders"]}</td>'
            bar = f'<div style="background:{colour};opacity:.35;height:.8em;width:{width}px"></div>'
            rows.append(f'<tr>{cells}<td style="text-align:left">{bar}</td></tr>')
    heads = ["price", "size", *(["orders"] if with_orders else []), ""]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f"<table><caption>{escape(summary(book))}</caption><tr>{head}</tr>{''.join(rows)}</table>"
    )
