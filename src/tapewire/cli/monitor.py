"""`tapewire monitor BUS`: watch every queue of a bus, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tapewire.cli.arguments import BusArgument
from tapewire.cli.http_serving import AllowHostOption, BindOption, serve_until_interrupted
from tapewire.cli.output import Exit, JsonOption, answer, console, fail, needing, print_json

if TYPE_CHECKING:
    from tapewire.monitor import Snapshot, Watch

__all__ = ["monitor"]


def monitor(
    bus: BusArgument,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.05, max=86400, help="Seconds between samples."
        ),
    ] = 1.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Print one table and exit; exit code 1 if there is an alert."),
    ] = False,
    web: Annotated[bool, typer.Option("--web", help="Serve a live web page.")] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Port of the page; 0: any free port."
        ),
    ] = 0,
    bind: BindOption = "127.0.0.1",
    allow_host: AllowHostOption = [],  # noqa: B006 - typer copies it
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    lag_records: Annotated[
        int,
        typer.Option(
            "--lag-records", metavar="N", min=1, help="Alert if a reader is more records behind."
        ),
    ] = 1_000_000,
    lag_bytes: Annotated[
        int,
        typer.Option(
            "--lag-bytes", metavar="N", min=1, help="Alert if a reader is more bytes behind."
        ),
    ] = 1 << 30,
    lag_seconds: Annotated[
        float,
        typer.Option(
            "--lag-seconds", metavar="S", help="Alert if a reader is more seconds behind."
        ),
    ] = 10.0,
    light: Annotated[bool, typer.Option("--light", help="Start with the light theme.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch every queue of a bus: rates, readers and their lag, alerts.

    Full-screen in a terminal; with --web a web page, with --json one snapshot per line.
    """
    from tapewire.monitor import Limits, Watch

    limits = Limits(lag_records=lag_records, lag_bytes=lag_bytes, lag_seconds=lag_seconds)
    watch = Watch(bus, limits=limits)
    if once:
        _once(watch, interval, as_json)
    elif web:
        _web(watch, interval, bind, port, allow_host, open_browser, as_json)
    elif as_json:
        _stream(watch, interval)
    else:
        _full_screen(watch, interval, light)


def _once(watch: Watch, interval: float, as_json: bool) -> None:
    watch.sample()
    time.sleep(interval)  # rates and ages need two samples
    snapshot = watch.sample()
    answer(snapshot.to_dict(), as_json, lambda: _print(snapshot))
    if any(alert.severity != "info" for alert in snapshot.alerts):
        raise SystemExit(int(Exit.FINDINGS))


def _stream(watch: Watch, interval: float) -> None:
    try:
        while True:
            print_json(watch.sample().to_dict())
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _web(
    watch: Watch,
    interval: float,
    bind: str,
    port: int,
    allow_host: list[str],
    open_browser: bool,
    as_json: bool,
) -> None:
    import webbrowser

    from tapewire.monitor.snapshot import printable
    from tapewire.monitor.web import LivePage

    serve_until_interrupted(
        lambda: LivePage(watch, interval=interval, bind=bind, port=port, allow_hosts=allow_host),
        what=f"{printable(watch.root)}, live,",
        path="",
        bind=bind,
        port=port,
        as_json=as_json,
        ready=webbrowser.open if open_browser else lambda url: None,
    )


def _full_screen(watch: Watch, interval: float, light: bool) -> None:
    with needing(
        "textual",
        "the live view needs the package textual, which is not installed",
        "pip install 'tapewire[monitor]', or use --web, --once or --json",
    ):
        from tapewire.monitor.terminal import LiveView
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(Exit.USAGE, "the live view needs a terminal", "use --once, --json or --web")
    LiveView(watch, interval=interval, light=light).run()


def _print(snapshot: Snapshot) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tapewire.monitor.tables import COLOURS, queue_cells, reader_cells
    from tapewire.text import time_text

    def table(*columns: str) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for i, column in enumerate(columns):
            made.add_column(
                column, justify="right" if i > 1 else "left", overflow="fold", no_wrap=i > 1
            )
        return made

    def cells(values: tuple[str, ...], state: int) -> list[Text]:
        return [Text(value, COLOURS[value] if i == state else "") for i, value in enumerate(values)]

    queues = table("queue", "writer", "rec/s", "bytes/s", "last seq", "lag", "disk")
    readers = table("reader", "state", "lag rec", "bytes", "time", "rec/s")
    for queue in snapshot.queues:
        queues.add_row(*cells(queue_cells(queue), 1))
        if queue.readers:
            readers.add_row(Text(queue.name, "dim"))
        for reader in queue.readers:
            name, *rest = reader_cells(reader)
            readers.add_row(*cells((f"  {name}", *rest), 1))
    # Outside a terminal, do not wrap names: a name on two lines cannot be found by grep.
    out = console if console.is_terminal else Console(width=1000, highlight=False)
    out.print(queues)
    if readers.row_count:
        out.print()
        out.print(readers)
    if snapshot.alerts:
        console.print()
    for alert in snapshot.alerts:
        line = Text.assemble(
            (f"{alert.severity:<9}", COLOURS[alert.severity]),
            f"{alert.text} ({time_text(alert.age)})",
        )
        console.print(line, soft_wrap=True)
        console.print(Text(" " * 9 + alert.remedy, "dim"), soft_wrap=True)
