"""Tables and names for a terminal, never truncated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

__all__ = ["print_columns", "shown"]


def shown(text: str) -> str:
    r"""Escape what a terminal must not receive: control characters and surrogates.

    Control characters would act on the terminal; a file name that is not UTF-8 cannot be encoded.

    Example:
        >>> shown("md\x1b[2J \udcff …")
        'md\\x1b[2J \\udcff …'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def print_columns(
    console: Console, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """Print a table in aligned columns, those of `right` right-aligned; lines are not wrapped."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        console.print(shown("  ".join(cells)).rstrip(), markup=False, soft_wrap=True)
