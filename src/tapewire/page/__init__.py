"""Self-contained HTML reports: plots as inline SVG, tables and cards, in light and dark.

Example:
    >>> from tapewire import page
    >>> text = page.document("A day", page.table(["hour", "trades"], [["9", "1,204"]]))
    >>> text.startswith("<!doctype html>"), "<td>1,204</td>" in text
    (True, True)
"""

from tapewire.page.parts import (
    cards,
    count,
    document,
    items,
    legend,
    section,
    table,
    write_file,
)
from tapewire.page.svg import Panel, Scale, figure, nines

__all__ = [
    "Panel",
    "Scale",
    "cards",
    "count",
    "document",
    "figure",
    "items",
    "legend",
    "nines",
    "section",
    "table",
    "write_file",
]
