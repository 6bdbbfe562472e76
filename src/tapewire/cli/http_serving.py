"""Shared by commands that serve HTTP: options, a warning, and running until Ctrl-C."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, Protocol, TypeVar

import typer

from tapewire.cli.output import Exit, answer, fail, say, warn

__all__ = ["AllowHostOption", "BindOption", "serve_until_interrupted"]

BindOption = Annotated[
    str,
    typer.Option(
        "--bind",
        metavar="ADDRESS",
        help="Address to listen on; addresses other than loopback are public.",
    ),
]
AllowHostOption = Annotated[
    list[str],
    typer.Option(
        "--allow-host",
        metavar="HOST",
        help="Additional host name to accept in requests; may be repeated.",
    ),
]


class _Serving(Protocol):
    @property
    def url(self) -> str: ...


S = TypeVar("S", bound=_Serving)


def serve_until_interrupted(
    start: Callable[[], AbstractContextManager[S]],
    *,
    what: str,
    path: str,
    bind: str,
    port: int,
    as_json: bool,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Start a server, print its URL, pass it to `ready`, and wait for Ctrl-C."""
    from tapewire.monitor.httpd import is_loopback

    if not is_loopback(bind):
        warn(f"warning: --bind {bind} shows this bus to everyone who can reach that address")
    try:
        with start() as serving:
            url = serving.url + path
            answer(
                {"url": url},
                as_json,
                lambda: say(f"{what} at {url} (Ctrl-C to quit)"),
            )
            ready(url)
            threading.Event().wait()
    except KeyboardInterrupt:
        return
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            fail(Exit.USAGE, f"cannot listen: bind={bind}, port={port}: {error.strerror}")
        raise
