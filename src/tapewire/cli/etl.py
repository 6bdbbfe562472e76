"""`tapewire etl JOB SOURCE TARGET`: the jobs over tapes, on Spark."""

from __future__ import annotations

import errno
import glob
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.output import Exit, JsonOption, answer, errors, fail, interruptible, say

if TYPE_CHECKING:
    from tapewire.spark.jobs import Summary

__all__ = ["etl", "run_job"]

etl = typer.Typer(
    name="etl",
    help="Jobs over tapes, on Spark: import, refine, features, bars, quality, compact.",
    no_args_is_help=True,
)

MasterOption = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="local[N], spark://HOST:PORT or sc://HOST:PORT (Connect)."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; again for more."),
]
DEFAULT_MASTER = "local[*]"


@etl.callback()
def _every_job() -> None:
    """Jobs over tapes, on Spark.

    Each is done in parts, a venue, symbol and day: run again after a kill it
    goes on with those that are missing, and does nothing when all are there.
    """


@etl.command(name="import")
def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file, a folder, or a pattern in quotes.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The archive; made if new.")],
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="What the files are.")],
    unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="What is a task: day, symbol, file or all."),
    ] = None,
    symbols: Annotated[
        list[str] | None,
        typer.Option("--symbol", metavar="SYMBOL", help="Only this symbol; again for more."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the format's."),
    ] = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import files of venues and vendors into an archive, many at a time.

    FORMAT and its options are those of `tapewire import`. A unit is what must
    be read in order: a symbol's day, or a symbol's days one after the other,
    told by the names of the files.

    Exits 1 when there were bad rows or gaps, 3 when a unit failed.
    """
    from tapewire import ingest
    from tapewire.cli.import_files import own_options

    if format_ not in ingest.IMPORTERS:
        fail(
            Exit.USAGE,
            f"not a format: {format_}",
            f"there are {', '.join(sorted(ingest.IMPORTERS))}",
        )
    options = own_options(ingest.importer_class(format_).Options, option or [])
    if symbols:
        options["symbols"] = tuple(symbols)

    run_job(
        "import_files", master, conf, as_json, source, target, format=format_, unit=unit, **options
    )


@etl.command()
def refine(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="An archive or a bus with raw logs, or a log.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The archive; made if new.")],
    late: Annotated[
        str, typer.Option(metavar="POLICY", help="Late records: keep, drop or separate.")
    ] = "keep",
    lateness: Annotated[
        float, typer.Option(min=0, metavar="S", help="Seconds behind the tape's clock.")
    ] = 1.0,
    snapshot_seconds: Annotated[
        float, typer.Option(min=1e-9, metavar="S", help="Of the tape, between snapshots.")
    ] = 60.0,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Pass over damage, and tell; else it fails.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Every worker sees the files of a live queue.")
    ] = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Split raw multiplexed logs into clean ones: a log per symbol, stream and day.

    Records keep their numbers, times and bytes; none comes twice. Books get
    snapshots, and every log a gap ledger. Run again, it takes in what is new.

    Exits 1 when there were gaps or unknown instruments, 3 when a log is damaged.
    """
    run_job(
        "refine",
        master,
        conf,
        as_json,
        source,
        target,
        late=late,
        lateness=lateness,
        snapshot_seconds=snapshot_seconds,
        on_damage="skip" if skip_damaged else "raise",
        shared=shared,
    )


@etl.command()
def compact(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="An archive, a log, or a folder of Parquet files."),
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where to; made if new.")],
    to: Annotated[
        str, typer.Option(metavar="KIND", help="parquet, or archive: back into logs.")
    ] = "parquet",
    target_bytes: Annotated[
        int, typer.Option(min=4096, metavar="N", help="Bytes of a Parquet file, about.")
    ] = 256 << 20,
    codec: Annotated[
        str, typer.Option(metavar="NAME", help="zstd, snappy, gzip, lz4 or none.")
    ] = "zstd",
    yes: Annotated[
        bool, typer.Option("--yes", help="Replace the source itself, or what a target has more.")
    ] = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Logs to Parquet and back without loss; small Parquet files to right-sized ones.

    Rows stay in their order. A folder appears whole or not at all. SOURCE is
    left as it is, unless it is TARGET too.

    Exits 3 when a log or a folder could not be done.
    """
    run_job(
        "compact",
        master,
        conf,
        as_json,
        source,
        target,
        to=to,
        target_bytes=target_bytes,
        codec=codec,
        yes=yes,
    )


def run_job(
    name: str,
    master: str,
    conf: list[str] | None,
    as_json: bool,
    source: str,
    target: str,
    /,
    **options: Any,
) -> None:
    """Start Spark, run a job, print its summary, and exit as it says.

    Args:
        name: Of the function of `tapewire.spark.jobs`.
        master: Where Spark runs.
        conf: ``NAME=VALUE`` each.
        as_json: The summary as JSON, and no progress.
        source: Given to the job.
        target: Given to the job.
        **options: Given to the job.
    """
    settings = _settings(conf or [])
    from tapewire import spark as tws  # says how to install it where it is not
    from tapewire.spark import jobs

    if "://" not in source and not glob.has_magic(source) and not os.path.lexists(source):
        raise FileNotFoundError(errno.ENOENT, "nothing is there", source)  # before Spark starts
    shown = name.removesuffix("_files")  # as it is typed
    stopped = False
    with interruptible():
        session = tws.session(f"tapewire {shown}", master=master, conf=settings)
        try:
            with interruptible(), jobs.Progress(shown, quiet=as_json) as progress:
                job: Callable[..., Summary] = getattr(jobs, name)
                summary = job(session, source, target, progress=progress, **options)
        except SystemExit as end:
            if end.code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
                say("tapewire: stopped; run it again to go on: what is done is kept", errors)
                stopped = True
            raise
        finally:
            # A call that was interrupted leaves this thread's line to Java with an answer on it.
            stopping = threading.Thread(target=_stop, args=(session, stopped))
            stopping.start()
            stopping.join()
    answer(summary.to_dict(), as_json, lambda: _show(summary))
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def _stop(session: Any, midway: bool) -> None:
    """End Spark; of tasks that it ends on the way, Java would tell by their stacks."""
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
            fail(Exit.USAGE, f"not a setting: {text}", "--conf NAME=VALUE")
        settings[name] = value
    return settings


def _show(summary: Any) -> None:
    for line in str(summary).splitlines():
        say(line)
