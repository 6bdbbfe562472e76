"""`run`: an import from its files to the finished job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapewire.errors import CorruptSource, InvalidOption
from tapewire.files import make_directories
from tapewire.ingest.chunk_writer import ChunkWriter
from tapewire.ingest.importer import ImportSummary
from tapewire.ingest.job import Job
from tapewire.ingest.registry import importer_class, importer_options
from tapewire.ingest.report import Report
from tapewire.ingest.source import SourceFile

__all__ = ["ImportProgress", "run"]


@dataclass(frozen=True)
class ImportProgress:
    """The progress of an import: `run` passes it to its `progress` function after each chunk.

    Files are read twice: while large ones are checked, rows and records are 0.
    """

    read_bytes: int
    total_bytes: int
    rows: int
    records: int


def run(
    format: str,
    files: Iterable[str | os.PathLike[str]],
    to: str | os.PathLike[str],
    *,
    progress: Callable[[ImportProgress], None] | None = None,
    **options: Any,
) -> ImportSummary:
    """Import files of a venue into an archive.

    An import that is killed at any moment resumes when it is run again: the archive then holds the
    same records as after one run. Running it again after its end does nothing.

    Args:
        format: A name of `IMPORTERS`.
        files: The files, in the order in which they were captured.
        to: The directory of the archive; created if it does not exist.
        progress: Called after each chunk.
        options: Options of the importer, the fields of its `Options`.

    Raises:
        CorruptSource: A file is truncated or damaged, and the records before the damage are
            archived; or a file is empty, and nothing is.
        InvalidOption: No such format or option, or the files belong to another market.
        ConcurrentUse: Another import reads the same files, or is unfinished in the same log.
        CorruptMetadata: A killed run left other records than this one writes.

    Example:
        >>> from tapewire import ingest
        >>> capture = tmp / "okx.txt"
        >>> _ = capture.write_text('1652459225.5: {"arg":{"channel":"trades","instId":"BTC-USDT"},'
        ...   '"data":[{"tradeId":"7","px":"30218.8","sz":"1","side":"buy","ts":"1652459199958"}]}')
        >>> summary = ingest.run("okx", [capture], tmp / "archive")
        >>> summary.records, list(summary.logs)
        (1, ['v1/okx/BTC-USDT/2022-05-13/trades'])
        >>> ingest.run("okx", [capture], tmp / "archive").already
        True
    """
    started = time.monotonic()
    cls = importer_class(format)
    chosen = importer_options(format, options)
    sources = [SourceFile(file) for file in files]
    for i, source in enumerate(sources):
        source.index = i
    if not sources:
        raise InvalidOption("nothing to import: files=[]", hint="give a file")
    for source in sources:
        source.check_content()
    importer = cls(chosen)
    importer.check(sources)
    archive = Path(to)
    make_directories(archive)
    total_bytes = sum(source.size for source in sources)

    def checked(read_bytes: int) -> None:
        if progress is not None:
            progress(ImportProgress(read_bytes, total_bytes, 0, 0))

    with Job(archive, format, chosen.of_records(), sources, checked) as job:
        if job.done:
            return job.finished_summary()
        with (
            ChunkWriter(archive, job) as writer,
            Report(job.directory, writer.gap, writer.instrument, writer.losses.add) as report,
        ):
            try:
                for chunk in importer.chunks(sources, report):
                    writer.write(chunk)
                    if progress is not None:
                        read = sum(source.read_bytes for source in sources)
                        records = sum(log.count for log in writer.logs.values())
                        progress(ImportProgress(read, total_bytes, report.rows, records))
            except CorruptSource:
                writer.end_books("damaged")
                raise
            writer.end_books("rejected")
            writer.finish()
        summary = ImportSummary(
            job=job.id,
            resumed=job.resumed,
            logs=writer.summaries(),
            rows=report.rows,
            bad=dict(report.bad_rows),
            skipped=dict(report.skipped + writer.left_out),
            gaps=sum(log.gaps for log in writer.logs.values()),
            untrusted=writer.untrusted(),
            rejected=os.fspath(report.rejected) if report.bad_rows else None,
            seconds=time.monotonic() - started,
        )
        job.finish(summary.to_dict())
    return summary
