"""`tapewire replay LOG…`: the books of a tape as they were, by its own time."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.ledger import gap_text
from tapewire.cli.output import Exit, JsonOption, console, errors, print_json, say, warn
from tapewire.cli.times import iso, parse_time
from tapewire.text import count_text

if TYPE_CHECKING:
    from tapewire.replay import Replay, Step

__all__ = ["replay"]


def replay(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG", help="Logs, read as one by their times.")
    ],
    symbols: Annotated[
        list[str] | None,
        typer.Option("--symbol", metavar="SYMBOL", help="Only this one: BTCUSDT, venue:BTCUSDT."),
    ] = None,
    time_from: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="From then on: ISO with a zone, ns, or -5m."),
    ] = None,
    time_to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Up to then, not included.")
    ] = None,
    levels: Annotated[
        int, typer.Option(min=0, max=1000, metavar="N", help="Levels of a side; 0: summary only.")
    ] = 1,
    sample: Annotated[
        float | None,
        typer.Option(
            min=1e-9, metavar="SECONDS", help="A book at most once in so much time of the tape."
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(min=1e-6, metavar="X", help="1: as recorded, 10: ten times as fast."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for more; Ctrl-C ends, exit code 0.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the books of one or more logs as they were, and what became of them.

    A line for each change of the levels shown and for each trade, then a
    summary with the hash of all books.

    Exits 1 when something was missing, 3 when records are damaged.
    """
    from tapewire.replay import Replay

    with Replay(
        logs,
        symbols,
        None if time_from is None else parse_time(time_from),
        None if time_to is None else parse_time(time_to),
        pace=speed,
        skip_damaged=True,
    ) as tape:
        shown = _Printer(levels, sample, as_json)
        try:
            if levels == 0 and speed is None and not follow:
                _run(tape)
            else:
                for step in tape.follow() if follow else tape:
                    shown.show(step)
        except KeyboardInterrupt:
            _summary(tape, as_json)
            raise SystemExit(0 if follow else 130) from None
        for finding in tape.findings:
            warn(f"snapshot passed over: {finding.why}")
        code = _summary(tape, as_json)
    if code is not Exit.OK:
        raise typer.Exit(int(code))


def _run(tape: Replay) -> None:
    """Through the whole tape, natively; where it is on standard error, on a terminal."""
    with _progress() as moved:
        while tape.run(seconds=0.2) != "end":
            moved(tape)


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    if not errors.is_terminal:
        yield lambda tape: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("replay")
        yield lambda tape: bar.update(
            task, description=f"{count_text(tape.records)} records, {iso(tape.clock_ns or 0)}"
        )


class _Printer:
    """Steps as lines: a book when what is shown of it changed, trades, gaps."""

    def __init__(self, levels: int, sample: float | None, as_json: bool) -> None:
        self._levels = levels
        self._sample_ns = 0 if sample is None else int(sample * 1e9)
        self._json = as_json
        self._last: dict[tuple[str, str], Any] = {}
        self._due: dict[tuple[str, str], int] = {}

    def show(self, step: Step) -> None:
        if step.kind == "gap" and step.gap is not None:
            self._gap(step)
        elif step.kind == "trade" and self._levels:
            self._trade(step)
        elif step.kind == "book" and step.book is not None and self._levels:
            self._book(step)

    def _book(self, step: Step) -> None:
        book, key = step.book, (step.venue or "", step.symbol or "")
        if step.clock_ns < self._due.get(key, step.clock_ns):
            return
        bids, asks = book.bids(self._levels), book.asks(self._levels)
        now = (bids.tobytes(), asks.tobytes(), book.trusted)
        if self._last.get(key) == now:
            return
        self._last[key] = now
        self._due[key] = step.clock_ns + self._sample_ns
        sides = [_texts(side, book.price_scale, book.size_scale) for side in (bids, asks)]
        if self._json:
            told = {"what": "book", **_where(step), "trusted": book.trusted}
            print_json({**told, "bids": sides[0], "asks": sides[1]})
            return
        trust = "" if book.trusted else f"  not trusted: {book.distrust_reason}"
        head = f"{iso(step.timestamp_ns)}  {step.venue}:{step.symbol}"
        if self._levels == 1:
            bid, ask = (side[0] if side else ["-", "-"] for side in sides)
            say(f"{head}  {bid[0]} × {bid[1]} | {ask[0]} × {ask[1]}{trust}")
            return
        say(f"{head}{trust}")
        for line in _ladder(*sides):
            say(f"  {line}")

    def _trade(self, step: Step) -> None:
        from tapewire.protocol.market import unscaled

        (row,) = step.trades
        price = unscaled(int(row["price"]), int(row["price_scale"]))
        size = unscaled(int(row["size"]), int(row["size_scale"]))
        if self._json:
            more = {"price": price, "size": size, "trade_id": int(row["trade_id"])}
            print_json({"what": "trade", **_where(step), **more})
        else:
            name = f"{step.venue}:{step.symbol}" if step.symbol else "trade"
            say(f"{iso(step.timestamp_ns)}  {name}  trade {size} at {price}")

    def _gap(self, step: Step) -> None:
        assert step.gap is not None
        first, last, cause = step.gap
        if self._json:
            told = {"first": first, "last": last, "cause": cause}
            print_json({"what": "gap", **_where(step), **told})
        else:
            say(f"{iso(step.clock_ns)}  gap: records {first:,} … {last:,} are {cause}")


def _where(step: Step) -> dict[str, Any]:
    return {
        "timestamp_ns": step.timestamp_ns,
        "seq": step.seq,
        "log": step.source,
        "venue": step.venue,
        "symbol": step.symbol,
    }


def _texts(side: Any, price_scale: int, size_scale: int) -> list[list[str]]:
    """Levels as decimal text: price and size."""
    from tapewire.protocol.market import unscaled

    return [
        [unscaled(price, price_scale), unscaled(size, size_scale)]
        for price, size in zip(side["price"].tolist(), side["size"].tolist(), strict=True)
    ]


def _ladder(bids: list[list[str]], asks: list[list[str]]) -> list[str]:
    """A ladder: sizes outside, prices inside, best on top."""
    rows = max(len(bids), len(asks), 1)
    padded = [side + [["", ""]] * (rows - len(side)) for side in (bids, asks)]
    return [
        f"{bid[1]:>16} {bid[0]:>14} | {ask[0]:<14} {ask[1]:<16}".rstrip()
        for bid, ask in zip(*padded, strict=True)
    ]


def _summary(tape: Replay, as_json: bool) -> Exit:
    gaps = tape.gaps
    damaged = any(gap.kind in ("record", "parse") for gap in gaps)
    open_gaps = [gap for gap in gaps if gap.action not in ("resynced", "noted")]
    if as_json:
        print_json(
            {
                "what": "summary",
                "records": tape.records,
                "events": tape.events,
                "clock_ns": tape.clock_ns,
                "books": [
                    {
                        "venue": venue,
                        "symbol": symbol,
                        "hash": book.hash(),
                        "trusted": book.trusted,
                        "reason": book.distrust_reason or None,
                    }
                    for (venue, symbol), book in sorted(tape.books.items())
                ],
                "gaps": len(gaps),
                "gaps_open": len(open_gaps),
                "gap_list": [dataclasses.asdict(gap) for gap in gaps],
                "hash": tape.hash(),
            }
        )
    else:
        sys.stdout.flush()
        console.print()
        end = "" if tape.clock_ns is None else f", to {iso(tape.clock_ns)}"
        say(f"records  {count_text(tape.records)}, {count_text(tape.events)} book events{end}")
        for (venue, symbol), book in sorted(tape.books.items()):
            say(f"book     {venue}:{symbol}  {book!r}")
        for gap in gaps:
            say(f"gap      {gap_text(gap)}: {gap.action}")
        say(f"gaps     {len(gaps)}, {len(open_gaps)} of them open")
        say(f"hash     {tape.hash()}")
    return Exit.DAMAGED if damaged else Exit.FINDINGS if gaps else Exit.OK
