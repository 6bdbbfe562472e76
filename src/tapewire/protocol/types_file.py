"""`types.json` in the directory of a log: the layouts of all messages written to it."""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Iterable
from typing import Any

from tapewire.errors import InvalidMessage, TapewireError
from tapewire.protocol.fields import BY_NAME, FieldType
from tapewire.protocol.json_file import (
    InvalidField,
    entries_of,
    load,
    locked_directory,
    members,
    parse_checked,
    store,
)
from tapewire.protocol.layout import Field, MessageLayout, check_versions

__all__ = ["FILE_NAME", "merge", "read"]

FILE_NAME = "types.json"
FORMAT = "tapewire-types"
FORMAT_VERSION = 1
MAX_FILE_BYTES = 4 << 20
MAX_LAYOUTS = 4096


def read(directory: str | os.PathLike[str]) -> list[MessageLayout]:
    """Read the layouts in a log's `types.json`; none if the file does not exist.

    Raises:
        CorruptMetadata: The file is damaged; the message names the place in it.
        UnsupportedVersion: A later release wrote it.
    """
    path = os.path.join(os.fspath(directory), FILE_NAME)
    try:
        text = load(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return []
    return parse(text, path)


def merge(directory: str | os.PathLike[str], layouts: Iterable[MessageLayout]) -> None:
    """Add layouts to `types.json`, atomically and durably; write nothing if all are present.

    Only the process that has the log's writer may call this.

    Raises:
        LayoutConflict: A layout conflicts with one in the file; nothing is written.
        ConcurrentUse: Another thread has been writing the file for `json_file.LOCK_SECONDS`.
    """
    path = os.path.join(os.fspath(directory), FILE_NAME)
    with locked_directory(os.fspath(directory), FILE_NAME) as directory_fd:
        existing = read(directory)
        added: list[MessageLayout] = []
        for layout in layouts:
            of_type = (old for old in existing + added if old.type_id == layout.type_id)
            try:
                check_versions(of_type, layout)
            except TapewireError as error:
                error.path = path
                raise
            if layout not in existing and layout not in added:
                added.append(layout)
        if added:
            text = render(existing + added)
            if len(text) > MAX_FILE_BYTES or len(existing) + len(added) > MAX_LAYOUTS:
                raise InvalidMessage(
                    f"too many messages for one log: types={len(existing) + len(added)}, "
                    f"max={MAX_LAYOUTS}, bytes={len(text)}, max={MAX_FILE_BYTES}",
                    path=path,
                )
            store(path, text, directory_fd)


def render(layouts: Iterable[MessageLayout]) -> bytes:
    """Return the file for these layouts: JSON, with one line for each field."""
    types = []
    for layout in sorted(layouts, key=lambda layout: (layout.type_id, layout.version)):
        fields = [
            json.dumps(
                {
                    "name": field.name,
                    "type": field.type.name,
                    "offset": field.offset,
                    "count": field.type.count,
                }
            )
            for field in layout.fields
        ]
        head = json.dumps(
            {
                "type_id": layout.type_id,
                "name": layout.name,
                "version": layout.version,
                "size": layout.size,
            }
        )
        lines = ",\n   ".join(fields)
        types.append(f'{head[:-1]}, "fields": [\n   {lines}\n ]}}')
    head = json.dumps({"format": FORMAT, "version": FORMAT_VERSION})
    between = ",\n "
    return f'{head[:-1]}, "types": [\n {between.join(types)}\n]}}\n'.encode()


def parse(text: bytes, path: str) -> list[MessageLayout]:
    """Parse the bytes of a `types.json`; `path` is for error messages."""
    made: list[MessageLayout] = parse_checked(text, path, _layouts, _REMEDY)
    return made


_REMEDY = (
    "restore the file, or remove it: no record is lost, and a writer declares its messages again"
)


def _layouts(document: Any) -> list[MessageLayout]:
    entries = entries_of(document, FORMAT, FORMAT_VERSION, "types", MAX_LAYOUTS)
    by_type: dict[int, list[MessageLayout]] = {}
    for i, entry in enumerate(entries):
        where = f"types[{i}]"
        layout = _layout(entry, where)
        # Versions are sorted and their sizes increase, so a layout that is compatible with its
        # neighbours is compatible with all: a file with thousands of versions is read quickly.
        versions = by_type.setdefault(layout.type_id, [])
        at = bisect.bisect(versions, layout.version, key=lambda other: other.version)
        near = versions[max(0, at - 1) : at + 1]
        if layout.version in (other.version for other in near):
            raise InvalidField(
                f"{where}: duplicate layout: type_id={layout.type_id}, version={layout.version}"
            )
        _in_context(where, check_versions, near, layout)
        versions.insert(at, layout)
    return [layout for versions in by_type.values() for layout in versions]


def _layout(entry: Any, where: str) -> MessageLayout:
    members(entry, where, type_id=int, name=str, version=int, size=int, fields=list)
    fields = []
    for i, field in enumerate(entry["fields"]):
        at = f"{where}.fields[{i}]"
        members(field, at, name=str, type=str, offset=int, count=int)
        fields.append(Field(field["name"], _field_type(field, at), field["offset"]))
    made: MessageLayout = _in_context(
        where,
        MessageLayout,
        entry["name"],
        entry["type_id"],
        entry["version"],
        entry["size"],
        tuple(fields),
    )
    return made


def _field_type(field: dict[str, Any], where: str) -> FieldType:
    kind = BY_NAME.get(field["type"])
    if kind is None:
        raise InvalidField(f"{where}: unknown type: type={field['type']!r}")
    if field["count"] == 1 and not kind.sized:
        return kind
    made: FieldType = _in_context(where, kind.__getitem__, field["count"])
    return made


def _in_context(where: str, call: Any, *arguments: Any) -> Any:
    """Return `call(*arguments)`; an error becomes `InvalidField` with the place in the file."""
    try:
        return call(*arguments)
    except TapewireError as error:
        raise InvalidField(f"{where}: {error.message}") from None
