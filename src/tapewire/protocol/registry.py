"""Which message classes this program knows, by type id and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapewire import log
from tapewire.errors import TapewireError, UnsupportedVersion
from tapewire.protocol.layout import Layout, check_versions

if TYPE_CHECKING:
    from tapewire.protocol.messages import Message

__all__ = ["forget", "known", "register"]

_messages: dict[int, dict[int, type[Message]]] = {}


def known(type_id: int) -> dict[int, type[Message]]:
    """The classes registered for a type id, by version."""
    return dict(_messages.get(type_id, {}))


def register(cls: type[Message]) -> None:
    """Have `Record.decode` make instances of `cls`; the decorator does this.

    The same definition again (a module loaded anew) replaces the class. Another one for the same
    type id and version is refused.
    """
    layout = cls.layout()
    versions = known(layout.type_id)
    check_versions([other.layout() for other in versions.values()], layout)
    versions[layout.version] = cls
    _set(layout.type_id, versions)


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


def wrong_size(size: int, layouts: list[Layout]) -> TapewireError:
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
