"""How every command answers: for people, as JSON with ``--json``, and by its exit code."""

from __future__ import annotations

import contextlib
import enum
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
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
    bool, typer.Option("--json", help="Print JSON instead, for programs.", show_default=False)
]

# Results go to standard output, everything about the run (progress, warnings, errors) to the other.
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line, at once: a program may be following."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A file's name that is not UTF-8 holds lone surrogates: escaped, they are JSON as well.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


def answer(value: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """The result of a command: `value` as JSON, or whatever `show` prints for people."""
    if as_json:
        print_json(value)
    else:
        show()


def say(text: str, to: Console = console) -> None:
    """One line for people, as long as need be: no markup, and nothing that acts on a terminal."""
    to.print(shown(text), markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Say on standard error what does not end the command."""
    say(f"tapewire: {message}", errors)


def fail(code: Exit, message: str, hint: str | None = None) -> NoReturn:
    """End the command: `message` and what to do about it on standard error."""
    say(f"tapewire: {message}", errors)
    if hint:
        say(f"  {hint}", errors)
    raise SystemExit(int(code))


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM unwind, so that nothing half is left; the exit code says which it was.

    An error that unwinding meets, in the clean-up of a library, does not take its place.
    """
    code: int | None = None

    def end(signum: int, _: object) -> None:
        nonlocal code
        code = 128 + signum
        raise SystemExit(code)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if code is not None:
            raise SystemExit(code) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def needing(package: str, message: str, hint: str) -> Iterator[None]:
    """Around imports that an extra provides: end the command where `package` is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        fail(Exit.USAGE, message, hint)


def explain(error: Exception) -> NoReturn:
    """End the command with what an error says and the exit code that fits it."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        where = getattr(error, "filename", None)
        fail(Exit.NOT_FOUND, f"nothing there: {where}" if where else str(error))
    if isinstance(error, NotALog):
        fail(Exit.NOT_FOUND, str(error))
    if isinstance(error, CorruptMetadata | CorruptRecord | CorruptSource | SegmentMissing):
        fail(Exit.DAMAGED, str(error))
    if isinstance(error, TapewireError | OSError | ValueError):
        fail(Exit.USAGE, str(error))
    raise error
