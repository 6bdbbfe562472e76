"""One record at a time from a Python loop: `writer.append`."""

from __future__ import annotations

from benchmarks import bare
from benchmarks.harness import (
    Row,
    Scale,
    against,
    percentiles,
    pin,
    quiet,
    repeat,
    scratch,
    timer_cost,
    unpin,
)
from tapewire.bench.timed_calls import append_call_ns, append_ns, each_append_ns, open_prefaulted

FAMILY = "append"


def run(scale: Scale) -> list[Row]:
    n, rounds = scale.pick(15_000, 1_000), scale.rounds
    with scratch() as directory:
        with open_prefaulted(directory / "mean", n * (rounds + 1)) as writer:
            pin(0)
            append_ns(writer, n)
            ours, call = repeat(rounds, lambda: append_ns(writer, n), lambda: append_call_ns(n))
        unpin()
        samples = scale.pick(500_000, 2_000)
        with open_prefaulted(directory / "each", samples + samples // 10) as writer, quiet():
            pin(0)
            each_append_ns(writer.append, samples // 10)
            single = percentiles(each_append_ns(writer.append, samples))
    timer = timer_cost(scale.pick(100_000, 1_000))
    return [
        against(FAMILY, "append(type, 64 B), mean", "ns", ours, "call", call, ("≤", 3.0)),
        Row(
            FAMILY,
            "append, each call timed, p50",
            single["p50"],
            "ns",
            detail={"percentiles": single},
        ),
        Row(
            FAMILY,
            "  of which the timer itself, p50",
            timer["p50"],
            "ns",
            detail={"percentiles": timer},
        ),
        Row(FAMILY, "  one clock read (in every append)", bare.clock_ns(scale), "ns"),
    ]
