"""Which files of an import depend on each other: those go through one importer, in their order."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable

from tapewire.errors import InvalidOption

__all__ = ["UNITS", "files_of", "units_of"]

# How the files of a format hang together. "day": a file begins with what it needs, so that each
# symbol's day stands alone. "symbol": a capture goes on in the next day's file, or a session of the
# exchange crosses midnight UTC, and the days of a symbol must come one after the other.
# "file": each stands alone.
DEFAULT_UNIT = {"tardis": "day", "sse": "day", "szse": "day", "lobster": "day", "dbn": "file"}
UNITS = ("day", "symbol", "file", "all")

_DATE = re.compile(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d)")
# Of one market there may be a file for each of these; they belong together.
_KIND = re.compile(
    r"(?:message|orderbook)_\d+|incremental_book_L2|book_snapshot_\d+|book_ticker|derivative_ticker|quotes|trades?|"
    r"orders?|trans(actions)?|snapshots?",
    re.IGNORECASE,
)
_ENDING = re.compile(r"(\.(gz|zip|csv|txt|log|dat|json|jsonl|dbn|zst))+$", re.IGNORECASE)


def files_of(source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that a source names: a file, a folder with all below it, a pattern, or many.

    Of a zip every member; ``day.zip!orders.txt`` names one. Hidden files are passed over.

    Raises:
        FileNotFoundError: There is none.
    """
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    files: dict[str, None] = {}
    for each in given:
        text = os.path.abspath(os.fspath(each))
        if os.path.isdir(text):
            found = _below(text)
        elif os.path.lexists(text) or os.path.lexists(text.rpartition("!")[0]):
            found = [text]
        else:
            found = sorted(path for path in glob.glob(text) if os.path.isfile(path))
        if not found:
            raise FileNotFoundError(2, "no files there", text)
        for path in found:
            files.update(dict.fromkeys(_members(path)))
    return list(files)


def units_of(format: str, files: Iterable[str], unit: str | None = None) -> dict[str, list[str]]:
    """The files by the unit they belong to, each unit's in their order; units in theirs.

    Args:
        format: A name of `ingest.IMPORTERS`.
        files: As `files_of` gives them.
        unit: "day", "symbol", "file" or "all"; None: what suits the format.

    Example:
        >>> units_of("tardis", ["/d/okex_trades_2024-01-01_BTC.csv.gz",
        ...     "/d/okex_quotes_2024-01-01_BTC.csv.gz", "/d/okex_trades_2024-01-02_BTC.csv.gz"])
        {'okex_BTC_2024-01-01': ['/d/okex_quotes_2024-01-01_BTC.csv.gz', \
'/d/okex_trades_2024-01-01_BTC.csv.gz'], 'okex_BTC_2024-01-02': \
['/d/okex_trades_2024-01-02_BTC.csv.gz']}
        >>> units_of("binance-usdm", ["/d/btc_20240102.gz", "/d/btc_20240101.gz"])
        {'btc': ['/d/btc_20240101.gz', '/d/btc_20240102.gz']}
    """
    unit = DEFAULT_UNIT.get(format, "symbol") if unit is None else unit
    if unit not in UNITS:
        raise InvalidOption(f"not a unit: unit={unit!r}", hint=f"one of {', '.join(UNITS)}")
    files = list(files)
    root = os.path.commonpath([os.path.dirname(file) for file in files]) if files else ""
    units: dict[str, list[str]] = {}
    for file in files:
        units.setdefault(_key(os.path.relpath(file, root), unit), []).append(file)
    return {name: sorted(units[name], key=_order) for name in sorted(units)}


def _key(path: str, unit: str) -> str:
    if unit == "all":
        return "all"
    if unit == "file":
        return _name(path)
    date = _DATE.search(path)
    rest = _ENDING.sub("", _DATE.sub("", path))
    text = _KIND.sub("", rest)
    name = _name(text)
    if unit == "day" and date is not None:
        name = _name(f"{name}_{date[1]}-{date[3]}-{date[4]}")
    return name


def _name(text: str) -> str:
    """The text as what may be a folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    return re.sub(r"([-_.])[-_.]+", r"\1", name).strip("-_.")[:100] or "files"


def _order(file: str) -> tuple[str, str]:
    """By day, then by name: a symbol's days follow each other wherever a name has its date."""
    date = _DATE.search(os.path.basename(file)) or _DATE.search(file)
    return ("" if date is None else date[1] + date[3] + date[4], file)


def _below(folder: str) -> list[str]:
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [os.path.join(parent, name) for name in sorted(names) if name[0] != "."]
        found += [path for path in paths if os.path.isfile(path)]
    return found


def _members(path: str) -> list[str]:
    """The members of a zip with more than one; else the file. A damaged zip is its importer's."""
    if not os.path.lexists(path) or not zipfile.is_zipfile(path):
        return [path]
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError):
        return [path]
    return [path] if len(names) <= 1 else [f"{path}!{name}" for name in sorted(names)]
