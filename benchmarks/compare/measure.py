"""Measurement of one alternative: its entry in results.json."""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Iterator
from typing import Any

from benchmarks.compare import ALTERNATIVES, Alternative
from benchmarks.harness import PAYLOAD_BYTES, Row, Scale, percentiles, scratch

SMOKE_MESSAGES = 200
FLOWS = 2  # runs of `throughput` per round; the best is shown


def identity(name: str) -> dict[str, Any]:
    """The fields that describe it, measured or not."""
    alternative = ALTERNATIVES[name]
    module = alternative.load()
    return {
        "name": name,
        "title": module.TITLE,
        "what": module.WHAT,
        "waits": alternative.waits,
        "batched": alternative.batched,
        "missing": None,
    }


def measure(name: str, scale: Scale) -> dict[str, Any]:
    alternative = ALTERNATIVES[name]
    module = alternative.load()
    result = identity(name) | {"missing": module.missing()}
    if result["missing"] is None:
        result["version"] = module.version()
        if module.one_way is not None:
            result["one_way"] = _one_way(alternative, module, scale)
        if module.throughput is not None:
            result["throughput"] = _throughput(alternative, module, scale)
    return result


def measured_or_failed(name: str, scale: Scale) -> dict[str, Any]:
    """The same, or the reason if it fails: one failure must not end the run."""
    try:
        return measure(name, scale)
    except Exception as error:
        traceback.print_exc()
        reason = (str(error).splitlines() or [""])[0]
        return identity(name) | {"failed": f"{type(error).__name__}: {reason}"}


def _one_way(alternative: Alternative, module: Any, scale: Scale) -> dict[str, Any]:
    messages = scale.pick(alternative.messages, SMOKE_MESSAGES)
    with scratch() as directory, time_limit(180 + 3 * messages * alternative.gap_ns / 1e9):
        trips = module.one_way(messages, PAYLOAD_BYTES, alternative.gap_ns, directory)
    if len(trips) != messages:
        raise RuntimeError(f"{module.TITLE}: {messages} sent, {len(trips)} received")
    found = percentiles(trips[messages // 10 :])
    return {"gap_ns": alternative.gap_ns, "percentiles": found, "p50_of_each_run": [found["p50"]]}


def _throughput(alternative: Alternative, module: Any, scale: Scale) -> dict[str, Any]:
    messages = scale.pick(alternative.flow, SMOKE_MESSAGES)
    rates = []
    for _ in range(scale.pick(FLOWS, 1)):
        with scratch() as directory, time_limit(180):
            rates.append(module.throughput(messages, PAYLOAD_BYTES, directory))
    return {
        "messages": messages,
        "records_per_s": max(rates),
        "of_each_run": rates,
        "how": " ".join((module.throughput.__doc__ or "").split()),
    }


def better(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two rounds of an alternative as one: lower median, higher throughput, and all runs."""
    if "failed" in first or first["missing"]:
        return first
    if "failed" in second:
        return second
    result = dict(first)
    if "one_way" in first:
        best = min(first, second, key=lambda one: one["one_way"]["percentiles"]["p50"])["one_way"]
        runs = [p50 for one in (first, second) for p50 in one["one_way"]["p50_of_each_run"]]
        result["one_way"] = best | {"p50_of_each_run": runs}
    if "throughput" in first:
        rates = [rate for one in (first, second) for rate in one["throughput"]["of_each_run"]]
        result["throughput"] = first["throughput"] | {
            "records_per_s": max(rates),
            "of_each_run": rates,
        }
    return result


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise an exception after a time limit, so that everything is still cleaned up."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)  # for example that of a test


def bars(results: list[dict[str, Any]]) -> list[Row]:
    """The rows of the performance table that compare Tapewire with an alternative of this run."""
    p50 = {
        alternative["name"]: alternative["one_way"]["percentiles"]["p50"] / 1e3
        for alternative in results
        if "one_way" in alternative
    }
    rows = []
    for what, names, against, limit in (
        ("pyzmq", ("pyzmq", "pyzmq-spinning"), "pyzmq ipc://, the faster", 0.05),
        ("iceoryx2", ("iceoryx2",), "iceoryx2's Python", 0.2),
    ):
        found = [p50[name] for name in names if name in p50]
        if "tapewire" in p50 and found:
            rows.append(
                Row(
                    "one_way",
                    f"busy-spin, stamp read, beside {what}, p50",
                    p50["tapewire"],
                    "µs",
                    against,
                    min(found),
                    ("≤", limit),
                )
            )
    return rows
