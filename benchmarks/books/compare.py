"""The rows of the books: each book in a process of its own, over the same events, in two passes.

If the final levels or the best prices during the replay differ between books, the run fails: their
speeds would not be comparable.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.books import alternatives, captures, events, tape
from benchmarks.books.replay import Ending, Job, Replayed
from benchmarks.compiled import compiled_against_core
from benchmarks.harness import Row, Scale, scratch
from benchmarks.machine import ROOT

FAMILY = "books"
UNIT = "M events/s"


@dataclass(frozen=True)
class Book:
    """A contestant: the module to start and the form of its book."""

    title: str
    module: str
    form: str = ""
    package: str | None = None  # of the alternatives' environment; None: Tapewire

    @property
    def missing(self) -> str | None:
        return None if self.package is None else alternatives.missing(self.package)

    def library(self) -> str:
        """The compiled loop of a book that has one."""
        if self.form == "native":
            return str(alternatives.nautilus_library())
        return str(compiled_against_core("tapewire_books.cpp")) if self.module == "alone" else ""


OURS = Book("Tapewire", "ours")
# Orders alone: prebuilt events in memory and a native loop, which is what the alternatives get.
OURS_ALONE = Book("Tapewire, the book alone", "alone")
HFT = tuple(
    Book(f"hftbacktest, {form}", "hftbacktest_books", form, "hftbacktest")
    for form in ("hash map", "vector")
)
# Not part of a bar: a complete back-test of hftbacktest, which does more than keep the book.
HFT_WHOLE = Book(
    "hftbacktest, vector, with its exchange", "hftbacktest_books", "vector, whole", "hftbacktest"
)
NAUTILUS = Book("nautilus_trader, native loop", "nautilus_books", "native", "nautilus_trader")
NAUTILUS_PYTHON = Book(
    "nautilus_trader, Python loop", "nautilus_books", "python", "nautilus_trader"
)
ALL = (OURS, OURS_ALONE, *HFT, HFT_WHOLE, NAUTILUS, NAUTILUS_PYTHON)


@dataclass(frozen=True)
class Market:
    """Events of one kind, where they come from, and the bars for them."""

    kind: str
    what: str
    events: events.Events
    price_scale: int = events.PRICE_SCALE
    size_scale: int = events.SIZE_SCALE
    # Captured diffs cross for a moment, because bids come before asks, and books define the best
    # price of a crossed book differently.
    same_tops: bool = True

    @property
    def title(self) -> str:
        return f"{self.kind.upper()}, {self.what}"


# By kind of market: what of Tapewire is held against which factor of each alternative.
BARS: dict[str, tuple[tuple[Book, str, dict[str, float]], ...]] = {
    "l2": ((OURS, "", {"hftbacktest": 2.0, "nautilus_trader": 5.0}),),
    "l3": (
        (OURS_ALONE, ", the book alone", {"hftbacktest": 3.0, "nautilus_trader": 3.0}),
        (OURS, ", from the queue", {"hftbacktest": 2.0, "nautilus_trader": 2.0}),
    ),
}


def started(book: Book, job: Job) -> dict[str, Any]:
    """The result that the process of one book prints."""
    python = sys.executable if book.package is None else str(alternatives.PYTHON)
    command = [python, "-m", f"benchmarks.books.{book.module}", json.dumps(asdict(job))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{book.title}, {job.kind}: its process ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def prepared(directory: Path, market: Market, rounds: int) -> Job:
    """Write the events to a file and to a queue."""
    path, queue = directory / f"{market.what}.npy", directory / f"{market.what}.queue"
    np.save(path, market.events)
    write = tape.write_l2 if market.kind == "l2" else tape.write_l3
    write(queue, market.events, market.price_scale, market.size_scale)
    scales = market.price_scale, market.size_scale
    return Job(market.kind, str(path), rounds, *scales, tape=str(queue))


def of(job: Job, book: Book) -> Job:
    return Job(**asdict(job) | {"form": book.form, "library": book.library()})


def replayed(book: Book, job: Job) -> Replayed:
    found = started(book, of(job, book))
    ending = Ending(**found.pop("ending"))
    return Replayed(**found, ending=ending)


def differing(found: dict[str, Replayed], same_tops: bool) -> list[str]:
    """A line for each book whose result differs from the first one's."""
    (name, first), *others = found.items()
    assert first.ending is not None
    lines = []
    for other, replay in others:
        assert replay.ending is not None
        same = same_tops or {name, other} <= {OURS.title, OURS_ALONE.title}
        names = ["bids", "asks"] + (["bid_sum", "ask_sum"] if same else [])
        lines += [
            f"{other}: {what}={getattr(replay.ending, what)}, "
            f"{name} has {getattr(first.ending, what)}"
            for what in names
            if getattr(replay.ending, what) != getattr(first.ending, what)
        ]
    return lines


def compared(job: Job, same_tops: bool, passes: int) -> dict[str, Replayed]:
    """The results of all available books, by title; raises an error if they differ."""
    found: dict[str, Replayed] = {}
    for _ in range(passes):  # minutes apart in a full run: a busy minute affects one pass
        for book in ALL:
            if book.missing is None and (job.kind == "l3" or book != OURS_ALONE):
                new = replayed(book, job)
                if book.title in found:
                    new.wall_s = found[book.title].wall_s + new.wall_s
                    new.cpu_s = found[book.title].cpu_s + new.cpu_s
                found[book.title] = new
    if lines := differing(found, same_tops):
        raise RuntimeError("the books differ:\n" + "\n".join(lines))
    return found


def _detail(replay: Replayed) -> dict[str, Any]:
    rates = sorted((replay.events / s / 1e6 for s in replay.cpu_s), reverse=True)
    return {
        "events": replay.events,
        "series": {"best": rates[0], "median": rates[len(rates) // 2], "all": rates},
        "by_the_clock": replay.events / min(replay.wall_s) / 1e6,
    }


def _fastest(package: str, found: dict[str, Replayed]) -> str | None:
    """The title of the fastest form of an alternative, None if it was not measured."""
    forms = [book.title for book in ALL if book.package == package and book.title in found]
    return max(forms, key=lambda title: found[title].best_rate, default=None)


def judged_rows(market: Market, found: dict[str, Replayed]) -> list[Row]:
    """Tapewire against the fastest form of each alternative, in each way of replaying."""
    rows = []
    for ours, way, bars in BARS[market.kind]:
        what, replay = f"{market.title}{way}", found[ours.title]
        value = replay.best_rate / 1e6
        held = [(package, bar, _fastest(package, found)) for package, bar in bars.items()]
        for package, bar, other in held:
            if other is not None:
                detail = _detail(replay) | {"against_series": _detail(found[other])["series"]}
                rows.append(Row(FAMILY, f"{what}, beside {package}", value, UNIT, other,
                                found[other].best_rate / 1e6, ("≥", bar), detail))  # fmt: skip
        if all(other is None for _, _, other in held):
            rows.append(Row(FAMILY, what, value, UNIT, detail=_detail(replay)))
    return rows


def rows_of(market: Market, found: dict[str, Replayed]) -> list[Row]:
    """The rows that have a bar, then each book by itself."""
    rows = judged_rows(market, found)
    for title, replay in found.items():
        detail = _detail(replay) | {"market": market.title}
        detail |= {"ours": title in (OURS.title, OURS_ALONE.title)}
        detail |= {"book": title, "column": f"{market.title}, {UNIT}"}
        what = f"  {market.title}: {title}"
        rows.append(Row(FAMILY, what, replay.best_rate / 1e6, UNIT, detail=detail))
    return rows


def memory_rows(directory: Path, orders: int) -> list[Row]:
    """Memory per resting order."""
    job = prepared(directory, Market("l3", "memory", events.resting_orders(orders)), 1)
    rows = []
    for book in (OURS, *HFT, NAUTILUS):
        if book.missing is None:
            taken = started(book, Job(**asdict(of(job, book)) | {"kind": "memory"}))["bytes"]
            detail = {"orders": orders, "bytes": taken, "book": book.title}
            detail |= {"column": "memory, B a resting order"}
            what = f"  memory, {orders:,} resting orders: {book.title}"
            rows.append(Row(FAMILY, what, taken / orders, "B/order", detail=detail))
    return rows


def _captured(kind: str, what: str, make: Any) -> Market:
    with scratch() as directory:
        found, *scales = make(directory)
    return Market(kind, what, found, *scales, same_tops=False)


FUTURE_DAY, STOCK_DAY = "a captured future", "a captured stock"


def markets(scale: Scale) -> list[Callable[[], Market]]:
    """The markets, created one at a time: each takes several hundred megabytes."""
    count = scale.pick(300_000, 5_000)
    found: list[Callable[[], Market]] = [
        lambda: Market("l2", "generated", events.l2_events(count)),
        lambda: Market("l3", "generated", events.l3_events(count)),
    ]
    if scale.smoke:
        return found
    if captures.missing(*captures.FUTURE) is None:
        found.append(lambda: _captured("l2", FUTURE_DAY, captures.future))
    if captures.missing(captures.STOCK) is None:
        found.append(lambda: _captured("l3", STOCK_DAY, captures.stock))
    return found


def who_is_who(scale: Scale) -> list[dict[str, Any]]:
    """The alternatives as `results.json` lists them, and the captures that are missing."""
    wanted = {FUTURE_DAY: captures.FUTURE, STOCK_DAY: (captures.STOCK,)}
    absent = {
        title: "only in the full run" if scale.smoke else captures.missing(*names)
        for title, names in wanted.items()
    }
    return alternatives.who_is_who() + [
        {"name": title, "title": f"books of {title}", "what": "events of a real market",
         "waits": "", "batched": True, "missing": reason}
        for title, reason in absent.items()
        if reason is not None
    ]  # fmt: skip


def run(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    rounds, passes = scale.pick((15, 2), (1, 1))
    for make in markets(scale):
        market = make()
        with scratch() as directory:
            found = compared(prepared(directory, market, rounds), market.same_tops, passes)
        rows += rows_of(market, found)
    with scratch() as directory:
        rows += memory_rows(directory, scale.pick(1_000_000, 10_000))
    return rows
