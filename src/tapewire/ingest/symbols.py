"""Names of symbols as directory names, and their instruments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import MAX_NAME_BYTES

if TYPE_CHECKING:
    from tapewire.ingest.importer import ImportOptions
    from tapewire.ingest.report import Report
    from tapewire.protocol.instruments import Instrument

__all__ = ["directory_name", "known_instrument"]

_UNFIT = re.compile(rb"[^A-Za-z0-9._-]|^\.")


def directory_name(symbol: bytes) -> str | None:
    """A symbol as the archive names it, or None if it is empty or too long.

    Letters, digits, ``.``, ``_`` and ``-`` stay. ``/`` and ``:`` become ``-``; any other byte, and
    a leading ``.``, becomes ``_`` and its two hexadecimal digits.

    Example:
        >>> directory_name(b"BTCUSDT"), directory_name(b"XBT/USD"), directory_name(b"AAC+")
        ('BTCUSDT', 'XBT-USD', 'AAC_2B')
    """
    name = _UNFIT.sub(
        lambda found: b"-" if found[0] in b"/:" else b"_%02X" % found[0][0], symbol
    ).decode("ascii")
    return name if 0 < len(name) <= MAX_NAME_BYTES else None


def known_instrument(report: Report, instrument: Instrument, options: ImportOptions) -> Instrument:
    """The instrument with the ids that the archive has for it.

    Raises:
        InvalidOption: The archive has it with other scales than the numbers were parsed at, or
            with single orders instead of levels, or the reverse.
    """
    known = report.instrument(instrument)
    if known.book_mode != instrument.book_mode:
        raise InvalidOption(
            f"the archive holds this instrument with another kind of book: "
            f"book_mode={instrument.book_mode}, {known.venue}:{known.symbol} has {known.book_mode}",
            hint="import into a new archive",
        )
    for name in ("price_scale", "size_scale"):
        has, asked = getattr(known, name), getattr(options, name)
        if has != asked:
            raise InvalidOption(
                f"the archive holds this instrument at another scale: {name}={asked}, "
                f"{known.venue}:{known.symbol} has {has}",
                hint=f"import with {name}={has}, or into a new archive",
            )
    return known
