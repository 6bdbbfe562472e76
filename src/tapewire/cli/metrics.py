"""`tapewire metrics BUS`: metrics for Prometheus."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tapewire.cli.arguments import BusArgument
from tapewire.cli.http_serving import AllowHostOption, BindOption, serve_until_interrupted
from tapewire.cli.output import JsonOption, needing, print_json

__all__ = ["metrics"]


def metrics(
    bus: BusArgument,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0: any free port."
        ),
    ] = 9464,
    bind: BindOption = "127.0.0.1",
    allow_host: AllowHostOption = [],  # noqa: B006 - typer copies it
    once: Annotated[
        bool, typer.Option("--once", help="Print the metrics and exit, without listening.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve Prometheus metrics at /metrics; each scrape reads every queue and reader of a bus."""
    from tapewire.monitor import Watch
    from tapewire.monitor.snapshot import printable

    watch = Watch(bus)
    with needing(
        "prometheus_client",
        "metrics need the package prometheus-client, which is not installed",
        "pip install 'tapewire[web]'",
    ):
        from tapewire.monitor import exporter
    if once and as_json:
        for metric in exporter.BusCollector(watch).collect():
            for sample in metric.samples:
                print_json({"name": sample.name, "labels": sample.labels, "value": sample.value})
    elif once:
        sys.stdout.write(exporter.exposition(exporter.BusCollector(watch)).decode())
    else:
        serve_until_interrupted(
            lambda: exporter.serve(watch, bind=bind, port=port, allow_hosts=allow_host),
            what=f"Metrics of {printable(watch.root)}",
            path="metrics",
            bind=bind,
            port=port,
            as_json=as_json,
        )
