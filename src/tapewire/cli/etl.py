"""`tapewire etl JOB SOURCE TARGET`: Spark jobs over logs and archives."""

from __future__ import annotations

import errno
import glob
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import SymbolOption
from tapewire.cli.import_files import FormatOption, check_format, own_options
from tapewire.cli.output import Exit, JsonOption, answer, errors, fail, interruptible, say

if TYPE_CHECKING:
    from tapewire.spark.jobs import Progress, Summary

    Job = Callable[[Any, Progress], Summary]  # Any: only tapewire.spark imports pyspark

__all__ = ["etl", "run_job"]

etl = typer.Typer(
    name="etl",
    help="Spark jobs over logs: import, refine, compact, features, bars, quality.",
    no_args_is_help=True,
)

MasterOption = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT (Connect).",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated."),
]
DEFAULT_MASTER = "local[*]"


@etl.callback()
def _every_job() -> None:
    """Spark jobs over logs and archives.

    A job consists of parts, mostly a venue, symbol and day. To continue a job
    that was killed, run it again: it builds only the parts that are missing.
    """


@etl.command(name="import")
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A file, a directory, or a quoted glob pattern."),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Archive; created if it does not exist.")
    ],
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of the files.")
    ],
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT", help="Files of one task: day, symbol, file or all; default by format."
        ),
    ] = None,
    symbols: SymbolOption = None,
    option: FormatOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import files of venues and vendors into an archive, many at a time.

    FORMAT and its options are those of `tapewire import`. Files that must be
    read in order form a unit and share a task: those of a symbol's day, or of
    all days of a symbol, according to their names.

    Exits 1 if there were bad rows or gaps, 3 if a unit failed.
    """
    from tapewire import ingest

    check_format(format_)
    options = own_options(ingest.importer_class(format_).Options, option or [])
    if symbols:
        options["symbols"] = tuple(symbols)

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.import_files(
            session, source, target, format=format_, unit=unit, progress=progress, **options
        )

    run_job("import", job, source, master, conf, as_json)


@etl.command()
def refine(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="An archive or bus with raw logs, or a log.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Archive; created if it does not exist.")
    ],
    late: Annotated[
        str,
        typer.Option(
            metavar="POLICY", help="What to do with late records: keep, drop or separate."
        ),
    ] = "keep",
    lateness: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="S",
            help="A record is late if its time is more than S seconds before the highest so far.",
        ),
    ] = 1.0,
    snapshot_seconds: Annotated[
        float,
        typer.Option(min=1e-9, metavar="S", help="Seconds of recorded time between snapshots."),
    ] = 60.0,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Skip and report damage; without it, the log fails."),
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Every worker sees the files of a live queue.")
    ] = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Split raw multiplexed logs into clean ones: a log per symbol, stream and day.

    Sequence numbers, times and bytes of records do not change; duplicates are
    removed. Books get snapshots, and every log a gap ledger. Another run adds
    what is new.

    Exits 1 if there were gaps or unknown instruments, 3 if a log is damaged.
    """

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.refine(
            session,
            source,
            target,
            late=late,
            lateness=lateness,
            snapshot_seconds=snapshot_seconds,
            on_damage="skip" if skip_damaged else "raise",
            shared=shared,
            progress=progress,
        )

    run_job("refine", job, source, master, conf, as_json)


@etl.command()
def compact(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="An archive, a log, or a directory of Parquet files."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Output directory; created if it does not exist."),
    ],
    to: Annotated[
        str, typer.Option(metavar="KIND", help="parquet, or archive to write logs again.")
    ] = "parquet",
    target_bytes: Annotated[
        int, typer.Option(min=4096, metavar="N", help="Approximate bytes of a Parquet file.")
    ] = 256 << 20,
    codec: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Compression of Parquet: zstd, snappy, gzip, lz4 or none."
        ),
    ] = "zstd",
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Replace SOURCE itself, or data of TARGET that SOURCE does not have."
        ),
    ] = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert logs to Parquet and back without loss; merge small Parquet files.

    Rows keep their order. A directory appears complete or not at all. SOURCE
    does not change unless it is also TARGET.

    Exits 3 if a log or a directory failed.
    """

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.compact(
            session,
            source,
            target,
            to=to,
            target_bytes=target_bytes,
            codec=codec,
            yes=yes,
            progress=progress,
        )

    run_job("compact", job, source, master, conf, as_json)


def run_job(
    name: str, job: Job, source: str, master: str, conf: list[str] | None, as_json: bool
) -> None:
    """Start Spark, run a job, print its summary, and exit with its exit code.

    The settings and the source are checked before pyspark is imported.

    Args:
        name: The job's name on the command line.
        job: Runs the job with a session and a progress line.
        source: What the job reads.
        master: Where Spark runs.
        conf: Settings of Spark, each ``NAME=VALUE``.
        as_json: Print the summary as JSON, and no progress.
    """
    settings = _settings(conf or [])
    if "://" not in source and not glob.has_magic(source) and not os.path.lexists(source):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
    from tapewire import spark as tws  # without pyspark, the error states how to install it
    from tapewire.spark import jobs

    stopped = False
    with interruptible():
        session = tws.session(f"tapewire {name}", master=master, conf=settings)
        try:
            with interruptible(), jobs.Progress(name, quiet=as_json) as progress:
                summary = job(session, progress)
        except SystemExit as end:
            if end.code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
                say("tapewire: stopped; run it again to continue: finished parts are kept", errors)
                stopped = True
            raise
        finally:
            # An interrupted call leaves an unread answer on this thread's connection to Java, so
            # another thread stops Spark.
            stopping = threading.Thread(target=_stop, args=(session, stopped))
            stopping.start()
            stopping.join()
    answer(summary.to_dict(), as_json, lambda: _show(summary))
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def _stop(session: Any, midway: bool) -> None:
    """Stop Spark. `midway`: suppress the stack traces that Java logs for the tasks it ends."""
    from tapewire.spark.sessions.session import context_of

    context = context_of(session)
    if midway and context is not None:
        context.setLogLevel("OFF")
    session.stop()


def _settings(given: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(Exit.USAGE, f"invalid setting: --conf {text}", "give --conf NAME=VALUE")
        settings[name] = value
    return settings


def _show(summary: Summary) -> None:
    for line in str(summary).splitlines():
        say(line)
