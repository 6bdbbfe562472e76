"""Decoding a log by its own `types.json`: for tools that do not have the program's classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from tapewire.log import Record
from tapewire.protocol import types_file
from tapewire.protocol.messages import Message, asdict, make_class

__all__ = ["TypeTable", "load_types"]


class TypeTable:
    """The messages of one log, by type id and size. Nothing is registered.

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

    def __init__(self, messages: Iterable[type[Message]] = ()) -> None:
        self._messages = tuple(messages)
        self._by_size = {(cls.type_id, cls.layout().size): cls for cls in self._messages}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> TypeTable:
        """The table of a log's folder; empty where there is no `types.json`.

        Raises:
            CorruptMetadata: The file is damaged; the message names file and field.
            UnsupportedVersion: A later release wrote it.
        """
        return cls(make_class(layout) for layout in types_file.read(folder))

    def find(self, record: Record) -> type[Message] | None:
        """The class of a record's message, or None where type id and size are not in the table."""
        return self._by_size.get((record.type_id, len(record)))

    def decode(self, record: Record) -> dict[str, Any] | None:
        """The fields of a record by name, or None where the table does not know it.

        Raises:
            CorruptRecord: A `char` field does not hold UTF-8.
        """
        cls = self.find(record)
        return None if cls is None else asdict(cls.__tapewire_make__(record))

    def __iter__(self) -> Iterator[type[Message]]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        names = (f" {m.__name__} version {m.layout().version}" for m in self._messages)
        return f"<TypeTable{','.join(names)}>"


def load_types(folder: str | os.PathLike[str]) -> list[type[Message]]:
    """Message classes made of a log's `types.json`, in the order of type id and version.

    They decode, and their instances can be appended; `Record.decode` does not know them, unless
    `register` is called with them.
    """
    return list(TypeTable.load(folder))
