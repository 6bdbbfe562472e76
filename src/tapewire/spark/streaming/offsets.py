"""The position of a streaming query: the offsets that Spark stores in its checkpoint.

The source uses `Offset`; the checkpoint holds JSON::

    {"v": 1, "view": "records", "logs": {"md": 1200}}
    {"v": 1, "view": "book", "logs": {"…/book": 1200, "…/trades": 88}, "times": {"binance:BTC": 17}}
    {"v": 1, "view": "gaps", "logs": {"md": 1200}, "ledgers": {"md": 3}}

`logs` maps each log to the sequence number that is read next. `times`, for replayed views, maps
each instrument to the time up to which rows were returned. `ledgers`, for the view `gaps`, maps
each log to the number of gaps of its ledger that were read. A checkpoint is a directory of text
files that anyone can edit, so every member is checked when it is read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapewire.errors import CorruptMetadata, UnsupportedVersion
from tapewire.protocol.json_file import InvalidField, members, short

__all__ = ["MAX_NEXT_SEQ", "Offset"]

VERSION = 1
_MAX_ENTRIES = 1_000_000  # logs of one query
_MAX_NAME_CHARACTERS = 4096
MAX_NEXT_SEQ = 2**63  # after the last sequence number that fits BIGINT
_MAX_TIME_NS = 2**63 - 1
_REMEDY = "restore the checkpoint from a copy, or start with a new one"


@dataclass(frozen=True)
class Offset:
    """A position in all logs of a query.

    Attributes:
        view: View of the query, which determines what the other members mean.
        logs: Name of each log to the sequence number that is read next. A log that is not listed
            is new: it is read from its beginning.
        times: Instrument to the time before which its rows were returned; replayed views only.
        ledgers: Name of each log to the number of gaps of its ledger that were read; `gaps` only.

    Example:
        >>> offset = Offset("records", {"md": 12})
        >>> offset.to_json()
        {'v': 1, 'view': 'records', 'logs': {'md': 12}}
        >>> Offset.parse(offset.to_json(), "records") == offset
        True
    """

    view: str
    logs: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    ledgers: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON. Equal offsets give equal text, which Spark compares."""
        document: dict[str, Any] = {
            "v": VERSION,
            "view": self.view,
            "logs": dict(sorted(self.logs.items())),
        }
        for name, table in (("times", self.times), ("ledgers", self.ledgers)):
            if table:
                document[name] = dict(sorted(table.items()))
        return document

    @classmethod
    def parse(cls, document: Any, view: str) -> Offset:
        """The offset that a checkpoint holds.

        Args:
            document: Any JSON.
            view: View of the query.

        Raises:
            CorruptMetadata: The document is not an offset of this source and view.
            UnsupportedVersion: A later release wrote it.
        """
        try:
            return cls._checked(document, view)
        except InvalidField as error:
            raise CorruptMetadata(
                f"the checkpoint has an invalid offset: {error}", hint=_REMEDY
            ) from None

    @classmethod
    def _checked(cls, document: Any, view: str) -> Offset:
        if not isinstance(document, dict):
            raise InvalidField(f"an offset must be an object: {short(document)}")
        version = document.get("v")
        if type(version) is int and version > VERSION:
            raise UnsupportedVersion(
                f"a later release wrote the checkpoint: v={version}, known={VERSION}",
                hint="read it with that release, or upgrade",
            )
        known: dict[str, type] = {"v": int, "view": str, "logs": dict}
        known |= {name: dict for name in ("times", "ledgers") if name in document}
        members(document, "the offset", **known)
        if version != VERSION:
            raise InvalidField(f"no such version: v={short(version)}")
        if document["view"] != view:
            raise InvalidField(
                f"it belongs to another view: view={short(document['view'])}, query={view!r}"
            )
        logs = _checked_integers("logs", document["logs"], MAX_NEXT_SEQ)
        times = _checked_integers("times", document.get("times", {}), _MAX_TIME_NS)
        ledgers = _checked_integers("ledgers", document.get("ledgers", {}), MAX_NEXT_SEQ)
        return cls(view, logs, times, ledgers)

    def check_follows(self, start: Offset) -> None:
        """Refuse a range that ends before `start`.

        Raises:
            CorruptMetadata: A log or an instrument is before its position in `start`, or missing.
        """
        for what, before, now in (
            ("logs", start.logs, self.logs),
            ("times", start.times, self.times),
            ("ledgers", start.ledgers, self.ledgers),
        ):
            for name, number in before.items():
                if now.get(name, -1) < number:
                    raise CorruptMetadata(
                        f"the range of a batch ends before it begins: {what}[{name!r}]: "
                        f"start={number}, end={now.get(name)}",
                        hint=_REMEDY,
                    )


def _checked_integers(what: str, table: dict[Any, Any], most: int) -> dict[str, int]:
    if len(table) > _MAX_ENTRIES:
        raise InvalidField(f"too many {what}: {what}={len(table)}, max={_MAX_ENTRIES}")
    for name, number in table.items():
        named = isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARACTERS
        if not named or not name.isprintable():
            raise InvalidField(f"{what} has an invalid name: {short(name)}")
        if type(number) is not int or not 0 <= number <= most:
            raise InvalidField(
                f"{what}[{short(name)}] must be an integer, 0 to {most}: {short(number)}"
            )
    return table
