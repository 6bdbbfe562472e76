"""The `tapewire` command: every subcommand, and the one place where errors become exit codes."""

from __future__ import annotations

from typing import Annotated

import typer

import tapewire.cli.etl_tables  # noqa: F401 - adds its commands to `etl`
from tapewire.cli.archive import archive
from tapewire.cli.bench import bench
from tapewire.cli.demo import demo
from tapewire.cli.doctor import doctor
from tapewire.cli.etl import etl
from tapewire.cli.export import export
from tapewire.cli.import_files import import_files
from tapewire.cli.inspect import inspect
from tapewire.cli.metrics import metrics
from tapewire.cli.monitor import monitor
from tapewire.cli.output import Exit, explain, fail
from tapewire.cli.readers import readers
from tapewire.cli.repair import repair
from tapewire.cli.replay import replay
from tapewire.cli.snapshotter import snapshotter
from tapewire.cli.tail import tail
from tapewire.cli.verify import verify

__all__ = ["app", "main"]

app = typer.Typer(
    name="tapewire",
    help="The tape of a trading system: inspect logs, import and replay market data, "
    "watch a bus, repair damage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import tapewire

        print(f"tapewire {tapewire.__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


app.command()(inspect)
app.command()(tail)
app.command()(verify)
app.command()(repair)
app.command()(export)
app.command(name="import")(import_files)
app.command()(replay)
app.command()(snapshotter)
app.add_typer(archive, name="archive")
app.command()(doctor)
app.add_typer(readers, name="readers")
app.add_typer(etl, name="etl")
app.command()(monitor)
app.command()(metrics)
app.command()(bench)
app.command()(demo)


def main() -> None:
    """Run the command line: exit 0 success, 1 findings, 2 usage error, 3 damage, 4 not found."""
    try:
        app()
    except ImportError as error:
        fail(Exit.USAGE, str(error), "this command needs an extra package that is not installed")
    except Exception as error:
        explain(error)  # raises an unexpected error again
