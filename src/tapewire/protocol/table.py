"""Decodes a log with its `types.json`, for tools that do not have the program's classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from tapewire.log import Record
from tapewire.protocol import types_file
from tapewire.protocol.layout import MessageLayout
from tapewire.protocol.messages import Message, asdict, make_class

__all__ = ["TypeTable", "load_types"]


class TypeTable:
    """The messages of one log, by type id and size. They are not registered.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.protocol import TypeTable
        >>> from tapewire.protocol.orders import CancelOrder
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append_message(CancelOrder("alpha", "BTCUSDT", 7))
        >>> table = TypeTable.load(tmp / "q")
        >>> table
        <TypeTable CancelOrder version 1>
        >>> with tw.open_log(tmp / "q") as log:
        ...     table.decode(log.next())["client_order_id"]
        7
    """

    def __init__(self, layouts: Iterable[MessageLayout] = ()) -> None:
        # Classes are made on demand: a tool may never need most of them.
        self._layouts = {(layout.type_id, layout.size): layout for layout in layouts}
        self._classes: dict[tuple[int, int], type[Message]] = {}

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> TypeTable:
        """Load the table of a log from its directory; empty if it has no `types.json`.

        Raises:
            CorruptMetadata: The file is damaged; the message names file and field.
            UnsupportedVersion: A later release wrote it.
        """
        return cls(types_file.read(directory))

    @property
    def layouts(self) -> list[MessageLayout]:
        """All layouts; the versions of a type are in order."""
        return list(self._layouts.values())

    def find(self, record: Record) -> type[Message] | None:
        """Return the message class of a record, or None if type and size are not in the table."""
        return self._class((record.type_id, len(record)))

    def _class(self, key: tuple[int, int]) -> type[Message] | None:
        if key not in self._classes and key in self._layouts:
            self._classes[key] = make_class(self._layouts[key])
        return self._classes.get(key)

    def decode(self, record: Record) -> dict[str, Any] | None:
        """Return the fields of a record by name, or None if it is not in the table.

        Raises:
            CorruptRecord: A `char` field is not UTF-8.
        """
        cls = self.find(record)
        return None if cls is None else asdict(cls.__tapewire_make__(record))

    def __iter__(self) -> Iterator[type[Message]]:
        for key in self._layouts:
            cls = self._class(key)
            assert cls is not None
            yield cls

    def __len__(self) -> int:
        return len(self._layouts)

    def __repr__(self) -> str:
        names = (f" {each.name} version {each.version}" for each in self._layouts.values())
        return f"<TypeTable{','.join(names)}>"


def load_types(directory: str | os.PathLike[str]) -> list[type[Message]]:
    """Make the message classes of a log's `types.json`, sorted by type id and version.

    They decode records, and their instances can be appended; `Record.decode` uses them only after
    `register`.
    """
    return list(TypeTable.load(directory))
