"""`tapewire bench`: measure this host, check its settings, and give a verdict."""

from __future__ import annotations

import datetime as dt
import json as jsonlib
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tapewire.cli.output import Exit, JsonOption, answer, console, errors, fail, interruptible

__all__ = ["bench"]

FORMAT, VERSION = "tapewire-bench", 1

# What microsecond work needs: (key, percentile, limit in nanoseconds, whether it is a tail).
LIMITS = (
    ("append", "p50", 1_000, False),
    ("one_way_spinning", "p50", 2_000, False),
    ("one_way_sleeping", "p50", 100_000, False),
    ("append", "p99.99", 50_000, True),
    ("one_way_spinning", "p99.9", 50_000, True),
    ("one_way_sleeping", "p99.9", 1_000_000, True),
    ("roll", "p99", 50_000, True),
)
_NS = {"ns": 1.0, "µs": 1e3, "ms": 1e6}
_PERCENTILES = ("p50", "p99", "p99.9", "p99.99", "max")


@dataclass(frozen=True)
class BenchVerdict:
    """What the host is good for, and the reasons against it."""

    level: str  # "good", "tails" or "poor"
    text: str
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"level": self.level, "text": self.text, "reasons": list(self.reasons)}


def bench(
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="PATH", help="Directory to measure in; default: in memory."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Approximate duration, seconds.")
    ] = 10.0,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the result to FILE as JSON.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with a saved result.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure this host: latencies, settings that impair them, and a verdict.

    Appends, reads, and sends between two processes, in a temporary directory.
    Each value is shown next to a baseline of the same host and run.
    """
    before = None if compare is None else _load(compare)
    if save is not None and not save.parent.is_dir():
        fail(Exit.NOT_FOUND, f"no such directory: {save.parent}")
    with interruptible():
        result = _run(directory, seconds)
    if before is not None:
        result["compared"] = compared(before, result)
    if save is not None:
        _store(save, {key: value for key, value in result.items() if key != "compared"})
    answer(result, json, lambda: _show(result))


def _run(directory: Path | None, seconds: float) -> dict[str, Any]:
    from tapewire.bench import host as bench_host
    from tapewire.bench.measure import BYTES_NEEDED, MEASURES, Measured
    from tapewire.bench.timing import scratch

    if directory is not None and not directory.is_dir():
        raise FileNotFoundError(2, "no such directory", str(directory))
    measured: list[Measured] = []
    with scratch(directory) as place:
        free = shutil.disk_usage(place).free
        if free < BYTES_NEEDED:
            fail(
                Exit.USAGE,
                f"not enough disk space: free={free:,} bytes, needed={BYTES_NEEDED:,}, in {place}",
                "give another directory with --dir",
            )
        host = bench_host.inspect_host(place)
        stolen = bench_host.stolen_ticks()
        for number, (name, measure) in enumerate(MEASURES.items(), 1):
            with errors.status(f"{number} of {len(MEASURES)}: {name}"):
                inside = place / name
                inside.mkdir()
                measured += measure(inside, seconds / 10)
                shutil.rmtree(inside)
        stolen = bench_host.stolen_ticks() - stolen
    found = bench_host.advice(host)
    values = {one.key: one.to_dict() for one in measured}
    stolen_seconds = stolen / os.sysconf("SC_CLK_TCK")
    disturbed = [f"{one.what}: {one.found}, {one.do}" for one in found if one.disturbs]
    return {
        "format": FORMAT,
        "version": VERSION,
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "directory": str((directory or place.parent).absolute()),
        "host": host.to_dict(),
        "stolen_seconds": stolen_seconds,
        "measured": values,
        "advice": [
            {"what": a.what, "found": a.found, "why": a.why, "do": a.do, "wanting": a.wanting}
            for a in found
        ],
        "verdict": judge(values, stolen_seconds, disturbed).to_dict(),
    }


def judge(
    measured: Mapping[str, Mapping[str, Any]],
    stolen_seconds: float = 0.0,
    disturbed: Sequence[str] = (),
) -> BenchVerdict:
    """Judge the host by its measurements; `disturbed` is added as reasons for slow ones.

    Example:
        >>> append = {"what": "append", "unit": "ns", "p50": 120.0, "p99.99": 90_000.0}
        >>> judge({"append": append}).text
        'medians are good for microsecond work, but tails will be bad'
    """
    slow: list[str] = []
    tails: list[str] = []
    for key, percentile, limit, is_tail in LIMITS:
        one = measured.get(key, {})
        if percentile not in one:
            continue
        ns = one[percentile] * _NS[one["unit"]]
        if ns > limit:
            reason = f"{one['what']}: {percentile} is {_span(ns)}, more than {_span(limit)}"
            (tails if is_tail else slow).append(reason)
    if stolen_seconds > 0.05:
        tails.append(f"the hypervisor took {stolen_seconds:.2f} s of CPU time away")
    if slow:
        return BenchVerdict("poor", "not for microsecond work", (*slow, *tails, *disturbed))
    if tails:
        text = "medians are good for microsecond work, but tails will be bad"
        return BenchVerdict("tails", text, (*tails, *disturbed))
    return BenchVerdict("good", "good for microsecond work", ())


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every value that both results have: before, now, and their ratio."""
    rows = []
    for key, one in now["measured"].items():
        old = before["measured"].get(key)
        if not isinstance(old, dict) or old.get("unit") != one["unit"]:
            continue
        for name in ("best", *_PERCENTILES):
            then = old.get(name)
            if name in one and isinstance(then, int | float) and then > 0:
                rows.append(
                    {
                        "key": key,
                        "what": one["what"],
                        "which": name,
                        "unit": one["unit"],
                        "before": then,
                        "now": one[name],
                        "ratio": round(one[name] / then, 3),
                        "more_is_better": one["more_is_better"],
                    }
                )
    return rows


def _load(path: Path) -> dict[str, Any]:
    """Load a saved result; end the command if the file is anything else."""
    with path.open("rb") as file:
        data = file.read(1 << 20)
    try:
        value = jsonlib.loads(data)
    except (ValueError, RecursionError):
        value = None
    valid = (
        isinstance(value, dict)
        and value.get("format") == FORMAT
        and value.get("version") == VERSION
        and isinstance(value.get("measured"), dict)
        and isinstance(value.get("host"), dict)
    )
    if not valid:
        fail(Exit.USAGE, f"not a result of `tapewire bench --save`: file={path}")
    assert isinstance(value, dict)
    return value


def _store(path: Path, result: Mapping[str, Any]) -> None:
    from tapewire.cli.export.files import new_file

    with new_file(str(path), force=True) as file:
        file.write((jsonlib.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())


def _show(result: Mapping[str, Any]) -> None:
    for line in _lines(result):
        console.print(line, markup=False, soft_wrap=True)


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    host, measured = result["host"], list(result["measured"].values())
    yield from _wrap(
        f"{host['cpu']}, {host['cpus']} CPUs, Linux {host['kernel']}, Python {host['python']}, "
        f"tapewire {host['tapewire']}; in {result['directory']} ({host['filesystem']})"
    )
    yield ""
    yield f"{'in a loop':<24} {'best':>10} {'median':>10}  baseline"
    for one in measured:
        if "best" in one:
            unit = one["unit"]
            baseline = f"{one['yardstick']}: {_value(one['yardstick_value'], unit)}"
            yield (
                f"{one['what']:<24} {_value(one['best'], unit):>10} "
                f"{_value(one['p50'], unit):>10}  {baseline}"
            )
    yield ""
    yield (
        f"{'one by one':<24}" + "".join(f"{name:>9}" for name in _PERCENTILES) + f"{'baseline':>10}"
    )
    for one in measured:
        if "max" in one:
            baseline = one["yardstick_value"]
            yield (
                f"{one['what']:<24}"
                + "".join(
                    f"{_value(one[name], one['unit']) if name in one else '':>9}"
                    for name in _PERCENTILES
                )
                + (f"{_value(baseline, one['unit']):>10}" if baseline is not None else "")
            )
    for one in measured:
        if "max" in one and one["yardstick"]:
            yield f"  baseline of {one['what']}: {one['yardstick']}, p50"
    yield from (f"  {one['what']}: {one['note']}" for one in measured if one["note"])
    yield ""
    yield from _advice_lines(result["advice"])
    if "compared" in result:
        yield ""
        yield from _compared_lines(result["compared"])
    yield ""
    verdict = result["verdict"]
    yield f"verdict: {verdict['text']}"
    for reason in verdict["reasons"]:
        yield from _wrap(reason, "  - ", "    ")


def _advice_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    fine = [f"{one['what']} ({one['found']})" for one in found if not one["wanting"]]
    for one in found:
        if one["wanting"]:
            yield from _wrap(f"{one['what']}: {one['found']} ({one['why']})", "", "  ")
            yield from _wrap(one["do"], "  → ", "    ")
    if fine:
        yield from _wrap("fine: " + ", ".join(fine), "", "  ")


def _compared_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'compared':<24} {'':>7} {'before':>10} {'now':>10} {'ratio':>8}"
    for row in rows:
        unit = row["unit"]
        yield (
            f"{row['what']:<24} {row['which']:>7} {_value(row['before'], unit):>10} "
            f"{_value(row['now'], unit):>10} {row['ratio']:>6.2f} ×"
        )


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        79,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(value: float, unit: str) -> str:
    return _span(value * _NS[unit]) if unit in _NS else f"{value:.3g} {unit}"


def _span(ns: float) -> str:
    """A span with three digits and a suitable unit.

    Example:
        >>> _span(69.42), _span(22_480), _span(3_773_000)
        ('69.4 ns', '22.5 µs', '3.77 ms')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * size:
            return f"{float(f'{ns / size:.3g}'):g} {unit}"
    return f"{float(f'{ns:.3g}'):g} ns"
