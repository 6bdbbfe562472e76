"""Output of every command: text, JSON with ``--json``, errors, and exit codes."""

from __future__ import annotations

import contextlib
import enum
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from tapewire.cli.terminal_text import shown
from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    CorruptSource,
    NotALog,
    SegmentMissing,
    TapewireError,
)

__all__ = [
    "Exit",
    "JsonOption",
    "answer",
    "console",
    "errors",
    "explain",
    "fail",
    "interruptible",
    "needing",
    "print_json",
    "say",
    "signals_call",
    "warn",
]


class Exit(enum.IntEnum):
    """Exit codes, the same for every command."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    DAMAGED = 3
    NOT_FOUND = 4


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text.", show_default=False)
]

# Results go to standard output; progress, warnings and errors go to standard error.
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line and flush, since a program may be following."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A file name that is not UTF-8 contains lone surrogates, which are valid JSON when escaped.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


def answer(value: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print the result of a command: `value` as JSON, or the text that `show` prints."""
    if as_json:
        print_json(value)
    else:
        show()


def say(text: str, to: Console = console) -> None:
    """Print one line of any length; markup and control characters have no effect."""
    to.print(shown(text), markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    say(f"tapewire: {message}", errors)


def fail(code: Exit, message: str, hint: str | None = None) -> NoReturn:
    """End the command with `code`; print `message` and `hint` on standard error."""
    say(f"tapewire: {message}", errors)
    if hint:
        say(f"  {hint}", errors)
    raise SystemExit(int(code))


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM unwind the stack, so that nothing incomplete is left.

    The exit code is 128 plus the signal's number, also if the clean-up of a library raises another
    error while the stack unwinds.
    """
    code: int | None = None

    def end(signum: int, _: object) -> None:
        nonlocal code
        code = 128 + signum
        raise SystemExit(code)

    with _handling(end):
        try:
            yield
        except Exception:
            if code is not None:
                raise SystemExit(code) from None
            raise


def signals_call(stop: Callable[[], object]) -> AbstractContextManager[None]:
    """Let Ctrl-C and SIGTERM call `stop`, which ends the work of the block regularly."""
    return _handling(lambda signum, frame: stop())


@contextlib.contextmanager
def _handling(handler: Callable[[int, object], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def needing(package: str, message: str, hint: str) -> Iterator[None]:
    """Wrap imports that an extra provides: end the command if `package` is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        fail(Exit.USAGE, message, hint)


def explain(error: Exception) -> NoReturn:
    """End the command with the message of an error and its exit code; raise unexpected errors."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        what = error.strerror or "No such file or directory"
        message = f"{what[0].lower()}{what[1:]}: {error.filename}"
        fail(Exit.NOT_FOUND, message if error.filename else str(error))
    if isinstance(error, NotALog):
        fail(Exit.NOT_FOUND, str(error))
    if isinstance(error, CorruptMetadata | CorruptRecord | CorruptSource | SegmentMissing):
        fail(Exit.DAMAGED, str(error))
    if isinstance(error, TapewireError | OSError | ValueError):
        fail(Exit.USAGE, str(error))
    raise error
