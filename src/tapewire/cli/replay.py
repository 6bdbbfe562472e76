"""`tapewire replay LOG…`: the books of logs, replayed in recorded time."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import FollowOption
from tapewire.cli.ledger import gap_text
from tapewire.cli.output import Exit, JsonOption, console, errors, print_json, say, warn
from tapewire.cli.times import iso, parse_time
from tapewire.text import count_text

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.replay import Replay, Step

__all__ = ["replay"]


def replay(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG", help="Logs, merged in the order of time.")
    ],
    symbols: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            metavar="SYMBOL",
            help="Only this symbol, BTCUSDT or VENUE:BTCUSDT; may be repeated.",
        ),
    ] = None,
    time_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start at this recorded time: ISO 8601 with a zone, nanoseconds, or -5m.",
        ),
    ] = None,
    time_to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="End before this recorded time."),
    ] = None,
    levels: Annotated[
        int,
        typer.Option(min=0, max=1000, metavar="N", help="Levels of each side; 0: summary only."),
    ] = 1,
    sample: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            metavar="SECONDS",
            help="Print a book at most once per this much recorded time.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            metavar="X",
            help="1: as recorded, 10: ten times as fast; default: as fast as possible.",
        ),
    ] = None,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay the books of one or more logs.

    Prints a line for each change of the levels shown and for each trade, then a
    summary with the hash of all books, and with the gaps found and those in the
    ledgers of the logs.

    Exits 1 if there were gaps, 3 if records are missing or damaged.
    """
    from tapewire.replay import Replay

    from_ns = None if time_from is None else parse_time(time_from)
    ledgers = _Ledgers(logs, symbols or [], from_ns)
    with Replay(
        logs,
        symbols,
        from_ns,
        None if time_to is None else parse_time(time_to),
        pace=speed,
        skip_damaged=True,
    ) as running:
        printer = _Printer(levels, sample, as_json)
        try:
            if levels == 0 and speed is None and not follow:
                _run(running)
            else:
                for step in running.follow() if follow else running:
                    printer.show(step)
        except KeyboardInterrupt:
            _summary(running, ledgers, as_json)
            raise SystemExit(0 if follow else 130) from None
        for finding in running.findings:
            warn(f"snapshot skipped: {finding.why}")
        code = _summary(running, ledgers, as_json)
    if code is not Exit.OK:
        raise typer.Exit(int(code))


def _run(replay: Replay) -> None:
    """Run the complete replay natively; show its progress if standard error is a terminal."""
    with _progress() as update:
        while replay.run(seconds=0.2) != "end":
            update(replay)


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    if not errors.is_terminal:
        yield lambda replay: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("replay")
        yield lambda replay: bar.update(
            task, description=f"{count_text(replay.records)} records, {iso(replay.clock_ns or 0)}"
        )


class _Printer:
    """Prints steps as lines: trades, gaps, and a book when its shown levels have changed."""

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
            head = {"what": "book", **_where(step), "trusted": book.trusted}
            print_json({**head, "bids": sides[0], "asks": sides[1]})
            return
        trust = "" if book.trusted else f"  not trusted: {book.distrust_reason}"
        line = f"{iso(step.timestamp_ns)}  {step.venue}:{step.symbol}"
        if self._levels == 1:
            bid, ask = (side[0] if side else ["-", "-"] for side in sides)
            say(f"{line}  {bid[0]} × {bid[1]} | {ask[0]} × {ask[1]}{trust}")
            return
        say(f"{line}{trust}")
        for row in _ladder(*sides):
            say(f"  {row}")

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
            gap = {"first": first, "last": last, "cause": cause}
            print_json({"what": "gap", **_where(step), **gap})
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
    """The lines of a ladder: sizes outside, prices inside, best on top."""
    rows = max(len(bids), len(asks), 1)
    padded = [side + [["", ""]] * (rows - len(side)) for side in (bids, asks)]
    return [
        f"{bid[1]:>16} {bid[0]:>14} | {ask[0]:<14} {ask[1]:<16}".rstrip()
        for bid, ask in zip(*padded, strict=True)
    ]


class _Ledgers:
    """The gap ledgers of the logs, for what is recorded only there."""

    def __init__(self, logs: list[str], symbols: list[str], from_ns: int | None) -> None:
        self._logs = logs
        self._symbols = symbols
        self._from_ns = from_ns or 0

    def gaps_besides(self, found: list[Gap], clock_ns: int | None) -> list[Gap]:
        """The gaps up to this time, without those that the replay has found."""
        from tapewire.book.gaps import GapLedger

        known = {gap.key for gap in found}
        return [
            gap
            for log in self._logs
            for gap in GapLedger(log).read()
            if gap.key not in known and self._is_asked_for(gap, clock_ns)
        ]

    def _is_asked_for(self, gap: Gap, clock_ns: int | None) -> bool:
        if clock_ns is None or not self._from_ns <= gap.timestamp_ns <= clock_ns:
            return False
        names = (gap.symbol, f"{gap.venue}:{gap.symbol}")
        return not gap.symbol or not self._symbols or any(name in self._symbols for name in names)


def _summary(replay: Replay, ledgers: _Ledgers, as_json: bool) -> Exit:
    found = replay.gaps
    gaps = [*found, *ledgers.gaps_besides(found, replay.clock_ns)]
    damaged = any(gap.kind == "record" or gap.cause == "unreadable" for gap in found)
    open_gaps = [gap for gap in gaps if gap.action not in ("resynced", "noted")]
    if as_json:
        print_json(
            {
                "what": "summary",
                "records": replay.records,
                "events": replay.events,
                "clock_ns": replay.clock_ns,
                "books": [
                    {
                        "venue": venue,
                        "symbol": symbol,
                        "hash": book.hash(),
                        "trusted": book.trusted,
                        "reason": book.distrust_reason or None,
                    }
                    for (venue, symbol), book in sorted(replay.books.items())
                ],
                "gaps": len(gaps),
                "gaps_open": len(open_gaps),
                "gap_list": [dataclasses.asdict(gap) for gap in gaps],
                "hash": replay.hash(),
            }
        )
    else:
        sys.stdout.flush()
        console.print()
        end = "" if replay.clock_ns is None else f", to {iso(replay.clock_ns)}"
        say(f"records  {count_text(replay.records)}, {count_text(replay.events)} book events{end}")
        for (venue, symbol), book in sorted(replay.books.items()):
            say(f"book     {venue}:{symbol}  {book!r}")
        for gap in gaps:
            say(f"gap      {gap_text(gap)}: {gap.action}")
        say(f"gaps     {len(gaps)}, {len(open_gaps)} of them open")
        say(f"hash     {replay.hash()}")
    return Exit.DAMAGED if damaged else Exit.FINDINGS if gaps else Exit.OK
