"""A book as text for people: one line, and a small ladder for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tapewire.protocol.market import unscaled

if TYPE_CHECKING:
    from tapewire.book._native import Book, Level

_LADDER_LEVELS = 5
_ASK_COLOUR, _BID_COLOUR = "#c0392b", "#1e8449"


def summary(book: Book) -> str:
    """Return the `repr` of a book."""

    def best(level: Level | None) -> str:
        if level is None:
            return "nothing"
        price = unscaled(level.price, book.price_scale)
        return f"{price} × {unscaled(level.size, book.size_scale)}"

    def counted(side: str) -> str:
        count = book.level_count(side)
        return f"{count} {side}" if count == 1 else f"{count} {side}s"

    text = f"{best(book.best_bid)} | {best(book.best_ask)}, {counted('bid')}, {counted('ask')}"
    if book.last_update:
        text += f", update {book.last_update}"
    if not book.trusted:
        text += f", untrusted: {book.distrust_reason}"
    return f"<{type(book).__name__} {text}>"


def ladder_html(book: Book) -> str:
    """Return the summary and a table of the best levels: asks above bids, with bars for the sizes.

    The summary is not a caption, which would be wrapped to the width of the table.
    """
    asks, bids = book.asks(_LADDER_LEVELS)[::-1], book.bids(_LADDER_LEVELS)
    most = max([1, *asks["size"].tolist(), *bids["size"].tolist()])
    with_orders = "orders" in (bids.dtype.names or ())
    rows = []
    for levels, colour in ((asks, _ASK_COLOUR), (bids, _BID_COLOUR)):
        for level in levels:
            price, size = int(level["price"]), int(level["size"])
            cells = [
                f'<td style="text-align:right;color:{colour}">{unscaled(price, book.price_scale)}',
                f'<td style="text-align:right">{unscaled(size, book.size_scale)}',
                *([f'<td style="text-align:right">{level["orders"]}'] if with_orders else []),
                f'<td><div style="background:{colour};opacity:.35;height:.8em;'
                f'width:{100 * size // most}px"></div>',
            ]
            rows.append(f"<tr>{'</td>'.join(cells)}</td></tr>")
    line = f"<div>{escape(summary(book))}</div>"
    if not rows:
        return line
    names = ["price", "size", *(["orders"] if with_orders else []), ""]
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"{line}<table><tr>{head}</tr>{''.join(rows)}</table>"
