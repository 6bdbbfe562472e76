"""Captures and files of venues into an archive: `run`, and the importers behind it.

An importer reads a format and yields records in `Chunk`s; the framework splits them into logs by
venue, symbol, UTC day and stream, and makes an import that was killed resume without a record
missing or twice.
"""

from tapewire.ingest.import_run import ImportProgress, run
from tapewire.ingest.importer import (
    Chunk,
    Importer,
    ImportOptions,
    ImportSummary,
    LogSummary,
)
from tapewire.ingest.pending import Pending
from tapewire.ingest.registry import IMPORTERS, importer_class
from tapewire.ingest.report import Report
from tapewire.ingest.source import SourceFile

__all__ = [
    "IMPORTERS",
    "Chunk",
    "ImportOptions",
    "ImportProgress",
    "ImportSummary",
    "Importer",
    "LogSummary",
    "Pending",
    "Report",
    "SourceFile",
    "importer_class",
    "run",
]
