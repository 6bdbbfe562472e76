"""The registered message classes, by type id and version."""

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
    """Return the classes registered for a type id, by version."""
    return dict(_messages.get(type_id, {}))


def type_ids() -> list[int]:
    """Return all registered type ids, sorted."""
    return sorted(_messages)


def register(cls: type[Message]) -> None:
    """Make `Record.decode` return instances of `cls`; the decorator calls this.

    A class with the same type id and version is replaced, as when a notebook cell is run again or
    a module is reloaded; so are other versions that conflict with a changed layout. If another
    module defined the class, a warning is logged. A new version must not conflict with the others.
    """
    layout = cls.layout()
    versions = known(layout.type_id)
    before = versions.pop(layout.version, None)
    if before is None or before.layout() == layout:
        check_versions([other.layout() for other in versions.values()], layout)
    else:
        versions = {v: other for v, other in versions.items() if _compatible(other, layout)}
        if before.__module__ != cls.__module__:
            _log.warning(
                "type_id=0x%04X version %d: %s.%s is replaced by %s.%s",
                *(layout.type_id, layout.version, before.__module__, before.__qualname__),
                *(cls.__module__, cls.__qualname__),
            )
    versions[layout.version] = cls
    _set(layout.type_id, versions)


def _compatible(other: type[Message], layout: MessageLayout) -> bool:
    try:
        check_versions([other.layout()], layout)
    except LayoutConflict:
        return False
    return True


def forget(cls: type[Message]) -> None:
    """Unregister a class, so that another one can have its type id and version."""
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
    """Make the error for a payload whose size is that of none of these versions of a type."""
    newest = max(layouts, key=lambda layout: layout.version)
    known_versions = ", ".join(layout.title for layout in layouts)
    if size > newest.size:
        why, hint = "newer than the versions", "use a release that defines the newer version"
    else:
        why, hint = "of none of the versions", "define the older version beside the newer one"
    return UnsupportedVersion(
        f"the message is {why} that this program defines: "
        f"type_id=0x{newest.type_id:04X}, payload={size} bytes, known={known_versions}",
        hint=f"{hint}, or decode it with the log's types.json (tapewire.protocol.TypeTable)",
    )
