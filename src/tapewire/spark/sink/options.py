"""The options of the sink, ``df.write.format("tapewire")``: parsed and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tapewire.bus.names import check_name
from tapewire.errors import InvalidOption
from tapewire.text import did_you_mean

__all__ = ["KEYS", "WriteOptions"]

# The parts of the path of a log, in order, without its day.
KEYS = ("venue", "symbol", "stream")
# The name used for keys that `partitionBy` omits.
ALL = "all"
# Small, as in an import, because an archive has a log for each stream, symbol and day.
SEGMENT_BYTES = 4 << 20
_NAMES = (
    "path",
    "type",
    "module",
    "partitionby",
    "writer",
    "batch",
    "segment_bytes",
    "duplicates",
    "instruments",
    *KEYS,
)

# Options of Spark that it passes to the sink of a streaming query.
_SPARK_NAMES = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, created by `parse`.

    Attributes:
        path: The archive, absolute because workers have other working directories.
        type: Name or id of the message that rows become; None: rows are records.
        module: Module that defines that message.
        partition_by: The key columns of option `partitionBy`; None: those of `KEYS` that exist.
        constants: Keys that have one name for all rows.
        writer: Name of the writer, under which manifests are stored. Without it, a repeated write
            is not recognised.
        batch: Name of the batch of that writer; a streaming query numbers its batches itself.
        segment_bytes: Segment size of new logs.
        duplicates: "raise"; or "drop": omit rows whose sequence number is in the log or below its
            last one.
        instruments: Path of an instruments.json, its directory, or a directory below that; its
            instruments are added to those of the archive.

    Example:
        >>> options = WriteOptions.parse({"path": "out", "partitionBy": "symbol", "venue": "okx"})
        >>> options.partition_by, dict(options.constants)
        (('symbol',), {'venue': 'okx', 'stream': 'all'})
        >>> WriteOptions.parse({"path": "out", "partition": "symbol"})
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: no such option: partition; did you mean partitionby?
    """

    path: str
    type: str | None = None
    module: str | None = None
    partition_by: tuple[str, ...] | None = None
    constants: Mapping[str, str] | None = None
    writer: str | None = None
    batch: str | None = None
    segment_bytes: int = SEGMENT_BYTES
    duplicates: str = "raise"
    instruments: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> Self:
        """Parse the options, whose values are text and whose names are case-insensitive.

        Raises:
            InvalidOption: An option is unknown, missing, or has an invalid value.
            InvalidName: A writer, batch or key is not a valid directory name.
        """
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        if streaming:
            given = {name: value for name, value in given.items() if name not in _SPARK_NAMES}
        for name in given:
            if name not in _NAMES:
                raise InvalidOption(f"no such option: {name}", hint=did_you_mean(name, _NAMES))
        empty = [name for name, value in given.items() if not value]
        if empty:
            raise InvalidOption(f"{empty[0]} is empty")
        if "path" not in given:
            raise InvalidOption("there is no path", hint='name an archive: .save("archive/")')
        if "module" in given and "type" not in given:
            raise InvalidOption(
                f"module requires type: module={given['module']!r:.80}",
                hint='add option("type", NAME)',
            )
        partition_by = _partition_by(given.get("partitionby"))
        constants = {key: check_name(key, given[key]) for key in KEYS if key in given}
        if partition_by is not None:
            both = [key for key in constants if key in partition_by]
            if both:
                raise InvalidOption(
                    "a key must be a column or one name for all rows, not both: "
                    f"{both[0]}={constants[both[0]]!r}"
                )
            constants = {key: constants.get(key, ALL) for key in KEYS if key not in partition_by}
        return cls(
            path=_absolute_path(given["path"]),
            type=given.get("type"),
            module=given.get("module"),
            partition_by=partition_by,
            constants=constants,
            segment_bytes=_segment_bytes(given.get("segment_bytes")),
            duplicates=_duplicates(given.get("duplicates", "raise")),
            instruments=given.get("instruments"),
            **_writer_and_batch(given, streaming),
        )


def _writer_and_batch(given: Mapping[str, str], streaming: bool) -> dict[str, str | None]:
    writer, batch = given.get("writer"), given.get("batch")
    if streaming and writer is None:
        raise InvalidOption(
            "a streaming query needs a writer name, because Spark does not identify it to the sink",
            hint='add option("writer", NAME), a different one for each query that writes here',
        )
    if streaming and batch is not None:
        raise InvalidOption(f"a streaming query numbers its batches itself: batch={batch}")
    if not streaming and (writer is None) != (batch is None):
        raise InvalidOption(
            f"writer and batch require each other: writer={writer}, batch={batch}",
            hint='in foreachBatch: option("writer", NAME).option("batch", batch_id)',
        )
    for name, value in (("writer", writer), ("batch", batch)):
        if value is not None:
            check_name(name, value)
    return {"writer": writer, "batch": batch}


def _partition_by(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in (*KEYS, "date"):
            raise InvalidOption(
                f"an archive has no such key: partitionBy={name!r}",
                hint=f"rename the column: keys are {', '.join(KEYS)}, and the date, which is "
                "derived from timestamp_ns",
            )
        if names.count(name) > 1:
            raise InvalidOption(f"a key is duplicated: partitionBy={name!r}")
    return tuple(name for name in names if name != "date")


def _segment_bytes(text: str | None) -> int:
    if text is None:
        return SEGMENT_BYTES
    try:
        value = int(text)
    except ValueError:
        raise InvalidOption(
            f"segment_bytes must be a whole number: segment_bytes={text!r:.80}"
        ) from None
    if value % 4096 or not 8192 <= value <= 2 << 30:
        raise InvalidOption(
            f"segment_bytes must be a multiple of 4096 from 8 KiB to 2 GiB: segment_bytes={value}"
        )
    return value


def _duplicates(text: str) -> str:
    if text.lower() not in ("raise", "drop"):
        raise InvalidOption(f"duplicates must be raise or drop: duplicates={text!r:.80}")
    return text.lower()


def _absolute_path(text: str) -> str:
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    path = path.removeprefix("file:") if path.startswith("file:/") else path
    if "://" in path:
        raise InvalidOption(
            f"the sink writes mapped files, which need a local or mounted path: path={text!r:.80}",
            hint="give a directory of a filesystem that every worker sees",
        )
    return os.path.abspath(path)
