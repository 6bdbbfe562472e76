"""Marks of the completed parts of a job: they make it idempotent, and resumable after a kill.

`<target>/_tapewire/done/<job>/<part>.json` is written, durably, after everything that belongs to
the part. It records the inputs and options of the part: a run with the same ones skips it, a run
with others does it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapewire.bus.layout import CONTROL
from tapewire.bus.names import check_name
from tapewire.errors import CorruptMetadata, UnsupportedVersion
from tapewire.files import make_directories, path_below
from tapewire.protocol.json_file import (
    InvalidField,
    check_format,
    load,
    locked_directory,
    members,
    parse_checked,
    short,
    store,
)

__all__ = ["JobMark", "JobMarks", "digest_of"]

FORMAT = "tapewire-done"
VERSION = 1
MAX_BYTES = 16 << 20
_REMEDY = "remove the file: the part is then done again"


def digest_of(inputs: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    """A hash of everything that determines the output of a part.

    Example:
        >>> digest_of([{"path": "raw", "last_seq": 7}], {"late": "keep"})
        '7a3d0ff6a4659ff6c7a20132a83c836b'
    """
    text = json.dumps([VERSION, list(inputs), options], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class JobMark:
    """The record of a completed part.

    Attributes:
        part: Its name, like "binance/BTCUSDT/2024-07-01/book".
        digest: Hash of its inputs and options.
        inputs: For each input a path, and what distinguishes one state of it from another.
        options: Options of the job.
        result: What the job reports: rows, bytes, findings, outputs.
    """

    part: str
    digest: str
    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    result: dict[str, Any]


class JobMarks:
    """The marks of one job at one target.

    Example:
        >>> done = JobMarks(tmp, "refine")
        >>> inputs, options = [{"path": "raw", "last_seq": 7}], {"late": "keep"}
        >>> done.current("binance/BTCUSDT", inputs, options) is None
        True
        >>> done.write("binance/BTCUSDT", inputs, options, {"rows": 7})
        >>> done.current("binance/BTCUSDT", inputs, options).result
        {'rows': 7}
        >>> done.current("binance/BTCUSDT", inputs, {"late": "drop"}) is None
        True
    """

    def __init__(self, target: str | os.PathLike[str], job: str) -> None:
        self.target = Path(target)
        self.job = check_name("job", job)

    def __repr__(self) -> str:
        return f"JobMarks({os.fspath(self.target)!r}, {self.job!r})"

    def path(self, part: str) -> Path:
        """The file of a part; the pieces of its name become directories."""
        pieces = [check_name("part", piece) for piece in part.split("/")]
        pieces[-1] += ".json"
        return path_below(self.target, CONTROL, "done", self.job, *pieces)

    def read(self, part: str) -> JobMark | None:
        """The mark of a part, or None.

        Raises:
            CorruptMetadata: The file is damaged.
        """
        path = os.fspath(self.path(part))
        try:
            text = load(path, MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        document = parse_checked(text, path, _checked, _REMEDY)
        if document["part"] != part or document["job"] != self.job:
            raise CorruptMetadata(
                f"the file marks another part: part={document['part']!r}, job={document['job']!r}",
                path=path,
                hint=_REMEDY,
            )
        return JobMark(
            part, document["digest"], document["inputs"], document["options"], document["result"]
        )

    def known(self, part: str) -> JobMark | None:
        """The mark of a part, or None if it is damaged: doing a part again does no harm."""
        try:
            return self.read(part)
        except (CorruptMetadata, UnsupportedVersion):
            return None

    def current(
        self, part: str, inputs: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> JobMark | None:
        """The mark of a part if it has exactly these inputs and options, and is not damaged."""
        mark = self.known(part)
        return mark if mark is not None and mark.digest == digest_of(inputs, options) else None

    def write(
        self,
        part: str,
        inputs: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        result: Mapping[str, Any],
    ) -> None:
        """Mark a part, durably. Everything that belongs to it must be durable before."""
        path = self.path(part)
        make_directories(path.parent)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "job": self.job,
            "part": part,
            "digest": digest_of(inputs, options),
            "inputs": list(inputs),
            "options": dict(options),
            "result": dict(result),
        }
        text = json.dumps(document, indent=1, default=str).encode() + b"\n"
        with locked_directory(os.fspath(path.parent), path.name) as directory_fd:
            store(os.fspath(path), text, directory_fd)

    def forget(self, part: str) -> None:
        """Remove the mark, durably: the part is about to be replaced."""
        path = self.path(part)
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            locked_directory(os.fspath(path.parent), path.name) as directory_fd,
        ):
            os.unlink(path)
            os.fsync(directory_fd)


def _checked(value: Any) -> dict[str, Any]:
    document = check_format(value, FORMAT, VERSION, _REMEDY)
    members(
        document,
        "the document",
        format=str,
        version=int,
        job=str,
        part=str,
        digest=str,
        inputs=list,
        options=dict,
        result=dict,
    )
    if not all(isinstance(each, dict) for each in document["inputs"]):
        raise InvalidField(f"inputs must be objects: inputs={short(document['inputs'])}")
    return document
