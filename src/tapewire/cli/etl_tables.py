"""`tapewire etl features | bars | quality`: jobs that build tables from clean logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.etl import DEFAULT_MASTER, ConfOption, MasterOption, etl, run_job
from tapewire.cli.output import JsonOption

if TYPE_CHECKING:
    from tapewire.spark.jobs import Progress, Summary

__all__ = ["bars", "features", "quality"]

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="An archive with clean logs.")
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="Output directory; created if it does not exist.")
]
SymbolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--symbol", metavar="SYMBOL", help="Only this SYMBOL or VENUE:SYMBOL; may be repeated."
    ),
]
DateOption = Annotated[
    list[str] | None,
    typer.Option("--date", metavar="DAY", help="Only this day, YYYY-MM-DD; may be repeated."),
]
InstrumentsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="An instruments.json; default: the one above the logs."),
]
PLOTS_HELP = "Number of symbols' days that the report draws."


@etl.command()
def features(
    source: SourceArgument,
    target: TargetArgument,
    names: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Features, comma-separated; default: all.")
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            metavar="WHEN", help="When to write a row: event, trade, or a span such as 100ms."
        ),
    ] = "1s",
    symbols: SymbolOption = None,
    dates: DateOption = None,
    instruments: InstrumentsOption = None,
    plots: Annotated[int, typer.Option(min=0, metavar="N", help=PLOTS_HELP)] = 6,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute features of books and trades: Parquet by venue, date and symbol.

    TARGET/_report.html shows books, spreads and features.
    """
    from tapewire.replay.row_stream import look_back_ns

    wanted = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
    look_back_ns(wanted or ["mid"], sample)  # raises for an invalid name or sample

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.features(
            session,
            source,
            target,
            names=wanted,
            sample=sample,
            symbols=symbols,
            dates=dates,
            instruments=instruments,
            plots=plots,
            progress=progress,
        )

    run_job("features", job, source, master, conf, as_json)


@etl.command()
def bars(
    source: SourceArgument,
    target: TargetArgument,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Kind of bar: time, tick, volume or dollar.")
    ] = "time",
    size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Size of a bar, by its kind: a span (1m), trades, volume, or an amount of money.",
        ),
    ] = "1m",
    symbols: SymbolOption = None,
    dates: DateOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build bars of trades: Parquet by venue, date and symbol.

    Prices and sums are exact integers. Each UTC day starts a new bar.
    """
    from tapewire.bars.builder import BarSpec

    BarSpec.parse(kind, size)  # raises for an invalid kind or size

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.bars(
            session,
            source,
            target,
            kind=kind,
            size=size,
            symbols=symbols,
            dates=dates,
            progress=progress,
        )

    run_job("bars", job, source, master, conf, as_json)


@etl.command()
def quality(
    source: SourceArgument,
    target: TargetArgument,
    late: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="A record that arrives later than this after its exchange time is late "
            "(default: 10s).",
        ),
    ] = None,
    early: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How much earlier than its exchange time a record may arrive (default: 0).",
        ),
    ] = None,
    behind: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How much earlier a record's time may be than that of a record before it in the "
            "log (default: 0).",
        ),
    ] = None,
    clock_drift: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How far the shortest delays of two hours may differ (default: 250ms).",
        ),
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Levels of a venue's snapshot to compare (default: 25)."
        ),
    ] = None,
    symbols: SymbolOption = None,
    dates: DateOption = None,
    instruments: InstrumentsOption = None,
    plots: Annotated[int, typer.Option(min=0, metavar="N", help=PLOTS_HELP)] = 8,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report gaps, crossed books, clock errors, and drift from the venue's snapshots.

    Writes tables of Parquet below TARGET, and TARGET/_report.html.

    Exits 1 if there are findings, 3 if something could not be read.
    """

    def job(session: Any, progress: Progress) -> Summary:
        from tapewire.spark import jobs

        return jobs.quality(
            session,
            source,
            target,
            symbols=symbols,
            dates=dates,
            late=late,
            early=early,
            behind=behind,
            clock_drift=clock_drift,
            levels=levels,
            instruments=instruments,
            plots=plots,
            progress=progress,
        )

    run_job("quality", job, source, master, conf, as_json)
