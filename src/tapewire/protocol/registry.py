"""Which message classes this program knows, by type id and version."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tapewire import log
from tapewire.errors import LayoutConflict, TapewireError, UnsupportedVersion
from tapewire.protocol.layout import MessageLayout, check_versions

if TYPE_CHECKING:
    from tapewire.protocol.messages import Message

__all__ = ["forget", "known", "register", "type_ids"]

_log = logging.getLogger("tapewire.protocol")
_messages: dict[int, dict[int, type[Message]]] = {}


def known(type_id: int) -> dict[int, type[Message]]:
    """The classes registered for a type id, by version."""
    return dict(_messages.get(type_id, {}))


def type_ids() -> list[int]:
    """Every type id that has a class."""
    return sorted(_messages)


def register(cls: type[Message]) -> None:
    """Have `Record.decode` make instances of `cls`; the decorator does this.

    Who defines a type id and version again means it: a notebook's cell that is run once more, a
    module loaded anew. What was there is replaced, with the other versions that do not go with the
    new one; a log line tells when another module had defined it. A new version must go with the
    others.
    """
    layout = cls.layout()
    versions = known(layout.type_id)
    before = versions.pop(layout.version, None)
    if before is None or before.layout() == layout:
        check_versions([other.layout() for other in versions.values()], layout)
    else:
        versions = {v: other for v, other in versions.items() if _go_together(other, layout)}
        if before.__module__ != cls.__module__:
            _log.warning(
                "type_id=0x%04X version %d was %s.%s, and is %s.%s from now on",
                *(layout.type_id, layout.version, before.__module__, before.__qualname__),
                *(cls.__module__, cls.__qualname__),
            )
    versions[layout.version] = cls
    _set(layout.type_id, versions)


def _go_together(other: type[Message], layout: MessageLayout) -> bool:
    try:
        check_versions([other.layout()], layout)
    except LayoutConflict:
        return False
    return True


def forget(cls: type[Message]) -> None:
    """Take a class out again, so that another may have its type id and version."""
    layout = cls.layout()
    versions = known(layout.type_id)
    if versions.get(layout.version) is cls:
        del versions[layout.version]
        _set(layout.type_id, versions)


def _set(type_id: int, versions: dict[int, type[Message]]) -> None:
    if not versions:
        _messages.pop(type_id, None)
        log.unregister_decoder(type_id)
        return
    _messages[type_id] = versions
    makers = {cls.layout().size: cls.__tapewire_make__ for cls in versions.values()}

    def decode(record: log.Record) -> Any:
        make = makers.get(len(record))
        if make is None:
            raise wrong_size(len(record), [cls.layout() for cls in versions.values()])
        return make(record)

    log.register_decoder(type_id, decode)


def wrong_size(size: int, layouts: list[MessageLayout]) -> TapewireError:
    """The error for a payload that is of none of these versions of one type."""
    newest = max(layouts, key=lambda layout: layout.version)
    have = ", ".join(layout.title for layout in layouts)
    if size > newest.size:
        why, hint = "newer than any", "take the program's release that defines the newer version"
    else:
        why, hint = "of none", "define the older version beside the newer one"
    return UnsupportedVersion(
        f"the message is {why} of the versions this program knows: "
        f"type_id=0x{newest.type_id:04X}, payload={size} bytes, known={have}",
        hint=f"{hint}, or read it by the log's own types.json (tapewire.protocol.TypeTable)",
    )
