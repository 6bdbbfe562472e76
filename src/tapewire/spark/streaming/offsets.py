"""How far a streaming query has come: the offsets that Spark keeps in its checkpoint.

`Offset` is what the source understands, JSON what the checkpoint holds::

    {"v": 1, "view": "records", "logs": {"md": 1200}}
    {"v": 1, "view": "book", "logs": {"…/book": 1200, "…/trades": 88}, "times": {"binance:BTC": 17}}
    {"v": 1, "view": "gaps", "logs": {"md": 1200}, "ledgers": {"md": 3}}

`logs` has of each log the number that is read next. `times` has of each instrument, for the views
that are replayed, the time up to which rows have been given; `ledgers` of each log, for the view of
gaps, how many its ledger had told. A checkpoint is a folder of text files that anybody can edit:
what comes back is checked, to the last member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapewire.errors import CorruptMetadata, UnsupportedVersion
from tapewire.protocol.json_file import Wrong, members, short

__all__ = ["SEQ_MOST", "Offset"]

VERSION = 1
_MOST = 1_000_000  # logs of one query
_NAME_MOST = 4096
SEQ_MOST = 2**63  # behind the last number that fits a BIGINT
_TIME_MOST = 2**63 - 1
_REMEDY = "restore the checkpoint from a copy, or begin with a new one"


@dataclass(frozen=True)
class Offset:
    """A place in all logs of a query.

    Attributes:
        view: Of the query: what a number means depends on it.
        logs: Name of each log to the number that is read next. A log that is not here has not been
            seen: it is read from its beginning.
        times: Instrument to the time that its rows are before; of replayed views alone.
        ledgers: Name of each log to how many gaps of its ledger were read; of gaps alone.

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
        """As Spark keeps it. Equal offsets give equal text: Spark compares that."""
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
        """What a checkpoint says.

        Args:
            document: Any JSON.
            view: Of the query that asks.

        Raises:
            CorruptMetadata: It is no offset of this source, or of a query over another view.
            UnsupportedVersion: A later release wrote it.
        """
        try:
            return cls._checked(document, view)
        except Wrong as error:
            raise CorruptMetadata(
                f"the checkpoint has an offset that cannot be: {error}", hint=_REMEDY
            ) from None

    @classmethod
    def _checked(cls, document: Any, view: str) -> Offset:
        if not isinstance(document, dict):
            raise Wrong(f"an offset must be an object, it is {short(document)}")
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
            raise Wrong(f"no such version: v={short(version)}")
        if document["view"] != view:
            raise Wrong(f"it is of another view: view={short(document['view'])}, asked={view!r}")
        logs = _numbers("logs", document["logs"], SEQ_MOST)
        times = _numbers("times", document.get("times", {}), _TIME_MOST)
        return cls(view, logs, times, _numbers("ledgers", document.get("ledgers", {}), SEQ_MOST))

    def check_follows(self, start: Offset) -> None:
        """Refuse a range that goes backwards.

        Raises:
            CorruptMetadata: A log or an instrument is behind where it was, or no longer there.
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


def _numbers(what: str, table: dict[Any, Any], most: int) -> dict[str, int]:
    if len(table) > _MOST:
        raise Wrong(f"too many {what}: {what}={len(table)}, max={_MOST}")
    for name, number in table.items():
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MOST or not name.isprintable():
            raise Wrong(f"{what} has a name that cannot be: {short(name)}")
        if type(number) is not int or not 0 <= number <= most:
            raise Wrong(f"{what}[{short(name)}] must be a whole number: {short(number)}")
    return table
