"""`tapewire etl features | bars | quality`: jobs that make tables out of clean logs."""

from __future__ import annotations

from typing import Annotated

import typer

from tapewire.cli.etl import DEFAULT_MASTER, ConfOption, MasterOption, etl, run_job
from tapewire.cli.output import JsonOption

__all__ = ["bars", "features", "quality"]

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="An archive with clean logs.")
]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="Where to; made if new.")]
SymbolOption = Annotated[
    list[str] | None,
    typer.Option("--symbol", metavar="SYMBOL", help="Only this, or VENUE:SYMBOL; again for more."),
]
DateOption = Annotated[
    list[str] | None,
    typer.Option("--date", metavar="DAY", help="Only this day, YYYY-MM-DD; again for more."),
]
InstrumentsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="An instruments.json; else those above the logs."),
]


@etl.command()
def features(
    source: SourceArgument,
    target: TargetArgument,
    names: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Features with commas between; else all there are."),
    ] = None,
    sample: Annotated[
        str, typer.Option(metavar="WHEN", help="event, trade, or a span such as 100ms.")
    ] = "1s",
    symbols: SymbolOption = None,
    dates: DateOption = None,
    instruments: InstrumentsOption = None,
    plots: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many symbols' days are drawn.")
    ] = 6,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Features of books and trades: Parquet by venue, date and symbol.

    TARGET/_report.html shows books, spreads and features.
    """
    from tapewire.replay.row_stream import look_back_ns

    wanted = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
    look_back_ns(wanted or ["mid"], sample)  # raises where one is none, before Spark starts

    run_job(
        "features",
        master,
        conf,
        as_json,
        source,
        target,
        names=wanted,
        sample=sample,
        symbols=symbols,
        dates=dates,
        instruments=instruments,
        plots=plots,
    )


@etl.command()
def bars(
    source: SourceArgument,
    target: TargetArgument,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="time, tick, volume or dollar.")
    ] = "time",
    size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="A span (1m), trades, size, or money; by the kind."),
    ] = "1m",
    symbols: SymbolOption = None,
    dates: DateOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bars of trades: Parquet by venue, date and symbol.

    Prices and sums are exact integers; bars begin anew with each UTC day.
    """
    from tapewire.bars.builder import BarSpec

    BarSpec.parse(kind, size)  # before Spark starts, which takes a while

    run_job(
        "bars",
        master,
        conf,
        as_json,
        source,
        target,
        kind=kind,
        size=size,
        symbols=symbols,
        dates=dates,
    )


@etl.command()
def quality(
    source: SourceArgument,
    target: TargetArgument,
    late: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="Longer after its exchange time, a record is late [10s]."
        ),
    ] = None,
    early: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="May come so much before its exchange time [0]."),
    ] = None,
    behind: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="May be so much behind the tape's own clock [0]."),
    ] = None,
    clock_drift: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="May the shortest ways of two hours differ by [250ms]."),
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Levels of a venue's snapshot to compare [25]."),
    ] = None,
    symbols: SymbolOption = None,
    dates: DateOption = None,
    instruments: InstrumentsOption = None,
    plots: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many symbols' days are drawn.")
    ] = 8,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Gaps, crossed books, clocks, drift against the venue's snapshots.

    Tables of Parquet below TARGET, and TARGET/_report.html.

    Exits 1 when something was found, 3 when something could not be read.
    """
    run_job(
        "quality",
        master,
        conf,
        as_json,
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
    )
