"""The `tapewire` command: every subcommand, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from tapewire.cli.demo import demo
from tapewire.cli.output import Exit, explain, fail

__all__ = ["app", "main"]

app = typer.Typer(
    name="tapewire",
    help="The tape of a trading system: look into logs, watch a bus, mend what broke.",
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


app.command("demo")(demo)


def main() -> None:
    """Run the command line; exits 0 well, 1 findings, 2 used wrongly, 3 damaged, 4 not found."""
    try:
        app()
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): nothing more to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None
    except ImportError as error:
        fail(Exit.USAGE, str(error), "this command needs an extra package that is not installed")
    except Exception as error:
        explain(error)  # raises again what it does not know
