"""`tapewire import FORMAT FILES… --to ARCHIVE`: import captures and files of venues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import ArchiveOption, SymbolOption
from tapewire.cli.output import Exit, JsonOption, answer, console, errors, fail, interruptible, say
from tapewire.cli.terminal_text import print_columns
from tapewire.text import count_text

if TYPE_CHECKING:
    from tapewire.ingest import ImportProgress, ImportSummary

__all__ = ["FormatOption", "check_format", "import_files", "own_options"]

FormatOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Option of this format; may be repeated."),
]


def import_files(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="Format of the files.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES", help="Files in the order of capture; also .gz, .zst and .zip."
        ),
    ],
    to: ArchiveOption,
    symbols: SymbolOption = None,
    price_scale: Annotated[
        int | None,
        typer.Option(
            min=0, max=18, metavar="N", help="Decimals kept of a price; default by format."
        ),
    ] = None,
    size_scale: Annotated[
        int | None,
        typer.Option(
            min=0, max=18, metavar="N", help="Decimals kept of a size; default by format."
        ),
    ] = None,
    keep_wire: Annotated[
        bool, typer.Option("--keep-wire", help="Also store the venue's own bytes, in stream raw.")
    ] = False,
    option: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import captures or files of a venue into an archive: a log per symbol, day and stream.

    FORMAT is one of binance-spot, binance-usdm, bitget, coinbase, dbn, itch,
    lobster, okx, sse, szse and tardis.

    An import that was killed continues when it is run again; a complete one is
    not repeated. Rows that cannot be read are counted and written to a file.

    Exits 1 if there were bad rows or gaps, 3 if a file is truncated or damaged.
    """
    from tapewire import ingest

    check_format(format_)
    options: dict[str, Any] = own_options(ingest.importer_class(format_).Options, option or [])
    if symbols:
        options["symbols"] = tuple(symbols)
    if price_scale is not None:
        options["price_scale"] = price_scale
    if size_scale is not None:
        options["size_scale"] = size_scale
    if keep_wire:
        options["keep_wire"] = True
    with interruptible(), _bar() as progress:
        summary = ingest.run(format_, files, to, progress=progress, **options)
    answer(summary.to_dict(), as_json, lambda: _show(summary))
    if symbols and not summary.logs and not summary.already:
        fail(Exit.FINDINGS, f"the files have no records of these symbols: {', '.join(symbols)}")
    if not summary.clean:
        raise typer.Exit(int(Exit.FINDINGS))


def check_format(name: str) -> None:
    """End the command if `name` is not a format that can be imported."""
    from tapewire import ingest

    if name not in ingest.IMPORTERS:
        known = ", ".join(sorted(ingest.IMPORTERS))
        fail(Exit.USAGE, f"unknown format: format={name}", f"known formats: {known}")


def own_options(kind: type, given: list[str]) -> dict[str, Any]:
    """Parse options ``NAME=VALUE``, each as the type of its field in the dataclass `kind`."""
    import dataclasses

    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    booleans = [field.name for field in dataclasses.fields(kind) if "bool" in str(field.type)]
    chosen: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in defaults:
            fail(
                Exit.USAGE,
                f"invalid option of this format: --option {text}",
                f"give NAME=VALUE; names: {', '.join(defaults)}",
            )
        default = defaults[name]
        if name in booleans:
            if value not in ("true", "false"):
                fail(Exit.USAGE, f"invalid value: --option {text}, must be true or false")
            chosen[name] = value == "true"
        elif isinstance(default, int):
            try:
                chosen[name] = int(value)
            except ValueError:
                fail(Exit.USAGE, f"invalid value: --option {text}, must be an integer")
        else:
            chosen[name] = tuple(value.split(",")) if isinstance(default, tuple) else value
    return chosen


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[ImportProgress], None] | None]:
    """A progress bar on standard error, if that is a terminal."""
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("importing"),
        BarColumn(bar_width=20),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[records]:>14,} records"),
        TimeRemainingColumn(compact=True),
        console=errors,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None, records=0)

        def update(at: ImportProgress) -> None:
            bar.update(task, total=at.total_bytes, completed=at.read_bytes, records=at.records)

        yield update


def _show(summary: ImportSummary) -> None:
    if summary.already:
        say(f"already imported: {count_text(summary.records)} records, job {summary.job}")
    if summary.logs:
        print_columns(
            console,
            ["log", "records", "new", "gaps"],
            [
                [log.log, count_text(log.records), count_text(log.appended), count_text(log.gaps)]
                for log in sorted(summary.logs.values(), key=lambda log: log.log)
            ],
            right=(1, 2, 3),
        )
    _counts("bad rows", summary.bad)
    if summary.rejected:
        say(f"  written to {summary.rejected}")
    if summary.bad and not summary.logs and "another symbol" not in summary.skipped:
        say("  no row could be read: check that the files are of this format")
    _counts("not imported", summary.skipped)
    if summary.overlapping:
        say(
            f"may be in the logs twice: {count_text(summary.overlapping)} records without an id, "
            "with times before the end of an earlier import"
        )
    for book, why in summary.untrusted.items():
        say(f"not trusted at the end: {book}: {why}")
    if not summary.already:
        rate = summary.rows / summary.seconds if summary.seconds else 0.0
        again = ", resumed" if summary.resumed else ""
        say(
            f"{count_text(summary.records)} records of {count_text(summary.rows)} rows, "
            f"gaps: {count_text(summary.gaps)}, in {summary.seconds:.2f} s ({rate:,.0f} rows/s), "
            f"job {summary.job}{again}"
        )


def _counts(what: str, counts: dict[str, int]) -> None:
    if counts:
        say(f"{what}: {count_text(sum(counts.values()))}")
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            say(f"  {count_text(count):>9}  {name}")
