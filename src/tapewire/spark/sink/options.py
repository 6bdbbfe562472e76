"""What may be asked of the sink: the options of ``df.write.format("tapewire")``, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tapewire.bus.names import check_name
from tapewire.errors import InvalidOption
from tapewire.text import did_you_mean

__all__ = ["KEYS", "WriteOptions"]

# What the path of a log says besides its day, in the order of the path.
KEYS = ("venue", "symbol", "stream")
# The key of rows that are not told apart by it.
ALL = "all"
# Of a new log, as an import makes them: an archive has a log for each stream, symbol and day.
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

# What Spark hands on of its own with a streaming query.
_SPARKS = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write. Made by `parse`; what was not given has its default.

    Attributes:
        path: The archive that is written to, absolute: workers have other working folders.
        type: Name or id of the message that rows become; None: rows are records.
        module: Module that defines that message.
        partition_by: The key columns as they were given; None: whichever of `KEYS` are there.
        constants: Keys that are one name for all rows.
        writer: Who writes: the key of the manifests. Without one, a write is not recognised again.
        batch: Which batch of that writer; a streaming query numbers its own.
        segment_bytes: Of new logs.
        duplicates: "raise", or "drop": leave out rows whose number the log has or has passed.
        instruments: Path of an instruments.json, or a folder in or below the one that has it, to be
            put beside the logs.

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
        """The options out of Spark's texts; names in any case.

        Raises:
            InvalidOption: There is no such option, or its value cannot be; says which and why.
            InvalidName: A writer, batch or key is no name of a folder.
        """
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        if streaming:
            given = {name: value for name, value in given.items() if name not in _SPARKS}
        for name in given:
            if name not in _NAMES:
                raise InvalidOption(f"no such option: {name}", hint=did_you_mean(name, _NAMES))
        empty = [name for name, value in given.items() if not value]
        if empty:
            raise InvalidOption(f"{empty[0]} is empty")
        if "path" not in given:
            raise InvalidOption("there is no path", hint='name an archive: .save("archive/")')
        if "module" in given and "type" not in given:
            raise InvalidOption("module is of use with type alone", hint='add option("type", NAME)')
        partition_by = _partition_by(given.get("partitionby"))
        constants = {key: check_name(key, given[key]) for key in KEYS if key in given}
        if partition_by is not None:
            twice = [key for key in constants if key in partition_by]
            if twice:
                raise InvalidOption(
                    f"a key is a column or one name, not both: {twice[0]}={constants[twice[0]]!r}"
                )
            constants = {key: constants.get(key, ALL) for key in KEYS if key not in partition_by}
        return cls(
            path=_local(given["path"]),
            type=given.get("type"),
            module=given.get("module"),
            partition_by=partition_by,
            constants=constants,
            segment_bytes=_segment_bytes(given.get("segment_bytes")),
            duplicates=_duplicates(given.get("duplicates", "raise")),
            instruments=given.get("instruments"),
            **_keys_of_batch(given, streaming),
        )


def _keys_of_batch(given: Mapping[str, str], streaming: bool) -> dict[str, str | None]:
    writer, batch = given.get("writer"), given.get("batch")
    if streaming and writer is None:
        raise InvalidOption(
            "a streaming query must name itself: Spark does not tell a sink which query it is of",
            hint='add option("writer", NAME), one name for each query that writes here',
        )
    if streaming and batch is not None:
        raise InvalidOption(f"a streaming query numbers its batches itself: batch={batch}")
    if not streaming and (writer is None) != (batch is None):
        raise InvalidOption(
            "writer and batch go together: they are what a write is known by when it is done again",
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
                hint=f"its keys are {', '.join(KEYS)}, and the date, which comes from timestamp_ns;"
                " rename the column",
            )
        if names.count(name) > 1:
            raise InvalidOption(f"partitionBy names one twice: {name}")
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


def _local(text: str) -> str:
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    path = path.removeprefix("file:") if path.startswith("file:/") else path
    if "://" in path:
        raise InvalidOption(
            f"the sink writes to mapped files: path={text!r:.80}",
            hint="give a folder of a filesystem that every worker sees",
        )
    return os.path.abspath(path)
