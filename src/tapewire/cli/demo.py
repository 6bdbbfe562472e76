"""`tapewire demo`: run a small trading system, kill its processes, and audit its logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tapewire.cli.output import Exit, JsonOption, answer, console, errors, fail

__all__ = ["demo"]


def demo(
    seconds: Annotated[
        float,
        typer.Option(min=2.0, max=3600.0, metavar="S", help="Duration of the session, seconds."),
    ] = 20.0,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Random seed of the simulated orders and of the kills.")
    ] = 7,
    capture: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Replay a recorded depth stream (`TIME JSON` lines) as the market.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, metavar="DIR", help="Output directory, for index.html.")
    ] = Path("demo-output"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the bus afterwards, to inspect it with tapewire.")
    ] = False,
    spark: Annotated[
        bool,
        typer.Option("--spark/--no-spark", help="Compute features of the archive with Spark."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Run a small trading system, kill four of its processes, and show that no fill is lost.

    Its processes are an exchange, a router, two strategies, a snapshotter, an
    archiver and a late joiner. At the end all logs are compared. Then Spark
    refines the archive and computes features, which must equal those of a replay
    of the live queue.

    Exits 3 if two logs disagree, 1 if a process fails.
    """
    from tapewire.demo.audit import Disagreement
    from tapewire.demo.capture import check_capture
    from tapewire.demo.measure import measure
    from tapewire.demo.paths import DemoPaths
    from tapewire.demo.pipeline import archived, compute, why_no_spark
    from tapewire.demo.process_group import DemoFailed
    from tapewire.demo.report import write_page
    from tapewire.demo.run import Options, audit_session, run_session, scratch
    from tapewire.demo.summary import show, summary

    if capture is not None:
        check_capture(capture)
    began = time.monotonic()

    def say(text: str) -> None:
        if not as_json:
            console.print(f"[dim]{time.monotonic() - began:5.1f} s[/dim]  {text}", soft_wrap=True)

    options = Options(seconds, seed, capture=None if capture is None else str(capture))
    try:
        with scratch(keep) as root:
            if keep:
                errors.print(f"keeping the bus: {root}", markup=False, soft_wrap=True)
            history = run_session(root, options, say)
            books = audit_session(root, history)
            measures = measure(DemoPaths(root), history)
            kept = archived(DemoPaths(root))
            missing = why_no_spark() if spark else "not asked for"
            computed = compute(DemoPaths(root), out, say) if missing is None else None
    except Disagreement as error:
        fail(Exit.DAMAGED, f"two logs disagree: {error}")
    except DemoFailed as error:
        fail(Exit.FINDINGS, f"the demo failed: {error}")
    if spark and missing is not None:
        errors.print(f"skipping Spark: {missing}", markup=False, soft_wrap=True)
    result = summary(history, books, measures, kept, computed)
    page = write_page(out, result, measures, computed)
    result["page"] = str(page)

    def show_all() -> None:
        show(console, result)
        console.print(f"\nwrote {page}", soft_wrap=True)

    answer(result, as_json, show_all)
