"""Imports captures and files of venues into an archive: `run` and the importers it uses.

An importer reads a format and yields records in `Chunk`s. The framework splits them into logs by
venue, symbol, UTC day and stream, and resumes an import that was killed without lost or duplicated
records.
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
