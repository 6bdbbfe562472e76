"""Groups files that depend on each other into units: each unit goes through one importer."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable

from tapewire.errors import InvalidOption

__all__ = ["UNITS", "files_of", "units_of"]

# How the files of a format depend on each other. "day": each day of a symbol is independent.
# "symbol": a capture continues in the next day's file, or a session crosses midnight UTC, so the
# days of a symbol must be imported one after the other. "file": each file is independent.
DEFAULT_UNIT = {"tardis": "day", "sse": "day", "szse": "day", "lobster": "day", "dbn": "file"}
UNITS = ("day", "symbol", "file", "all")

_DATE = re.compile(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d)")
# A market may have a file for each of these kinds; they belong together.
_KIND = re.compile(
    r"(?:message|orderbook)_\d+|incremental_book_L2|book_snapshot_\d+|book_ticker|derivative_ticker|quotes|trades?|"
    r"orders?|trans(actions)?|snapshots?",
    re.IGNORECASE,
)
_ENDING = re.compile(r"(\.(gz|zip|csv|txt|log|dat|json|jsonl|dbn|zst))+$", re.IGNORECASE)


def files_of(source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that a source names: a file, a directory tree, a pattern, or several of these.

    A zip stands for all of its members; ``day.zip!orders.txt`` names one. Hidden files are skipped.

    Raises:
        FileNotFoundError: There are none.
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
            raise FileNotFoundError(2, "no such files", text)
        for path in found:
            files.update(dict.fromkeys(_members(path)))
    return list(files)


def units_of(format: str, files: Iterable[str], unit: str | None = None) -> dict[str, list[str]]:
    """The files of each unit, in order; units by name.

    Args:
        format: A name of `ingest.IMPORTERS`.
        files: The files, as `files_of` returns them.
        unit: "day", "symbol", "file" or "all"; None: the default of the format.

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
    """The text as a valid directory name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    return re.sub(r"([-_.])[-_.]+", r"\1", name).strip("-_.")[:100] or "files"


def _order(file: str) -> tuple[str, str]:
    """By day, then by name: a symbol's days are in order, wherever the name has its date."""
    date = _DATE.search(os.path.basename(file)) or _DATE.search(file)
    return ("" if date is None else date[1] + date[3] + date[4], file)


def _below(directory: str) -> list[str]:
    found = []
    for parent, children, names in os.walk(directory):
        children[:] = sorted(name for name in children if not name.startswith("."))
        paths = [os.path.join(parent, name) for name in sorted(names) if name[0] != "."]
        found += [path for path in paths if os.path.isfile(path)]
    return found


def _members(path: str) -> list[str]:
    """The members of a zip with more than one; else the file, also if it is a damaged zip."""
    if not os.path.lexists(path) or not zipfile.is_zipfile(path):
        return [path]
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError):
        return [path]
    return [path] if len(names) <= 1 else [f"{path}!{name}" for name in sorted(names)]
