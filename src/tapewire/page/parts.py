"""The parts of a page. Arguments that are text are escaped, those that are HTML are not."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

__all__ = [
    "cards",
    "count",
    "document",
    "items",
    "legend",
    "section",
    "table",
    "write_file",
]


def document(title: str, body: str) -> str:
    """Return a complete page with this body (HTML) and the style sheet."""
    style = resources.files("tapewire.page").joinpath("page.css").read_text(encoding="utf-8")
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{style}</style></head><body>{body}</body></html>",
        ]
    )


def write_file(path: Path, text: str) -> Path:
    """Write a page, replacing an earlier one atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def section(title: str, svg: str, text: str, keys: Iterable[tuple[str, str]] = ()) -> str:
    """Return a section with a title, a text, a legend and a plot (HTML)."""
    head = f"<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>"
    return f"{head}{legend(keys)}<figure>{svg}</figure>"


def legend(keys: Iterable[tuple[str, str]]) -> str:
    """Return a legend of ``(name, css class)``; empty without names."""
    text = "".join(f'<span><i class="{css}"></i>{html.escape(name)}</span>' for name, css in keys)
    return f'<p class="legend">{text}</p>' if text else ""


def count(value: int, one: str) -> tuple[str, str]:
    """Return the texts of a card: a count and its noun.

    Example:
        >>> count(1, "row"), count(1200, "row")
        (('1', 'row'), ('1,200', 'rows'))
    """
    return f"{value:,}", one if value == 1 else f"{one}s"


def cards(pairs: Iterable[tuple[str, str]]) -> str:
    """Return cards with large figures, each with its label."""
    made = (
        f'<div class="card"><b>{html.escape(a)}</b><span>{html.escape(b)}</span></div>'
        for a, b in pairs
    )
    return f'<div class="cards">{"".join(made)}</div>'


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table, which scrolls separately on a narrow page."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def items(lines: Iterable[str]) -> str:
    """Return a list."""
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
