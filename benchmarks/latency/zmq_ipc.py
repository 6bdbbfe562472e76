"""The same one-way trip through pyzmq's ipc:// (PUSH to PULL), in the same run, for the ratio."""

from __future__ import annotations

import time
from pathlib import Path

import zmq

from benchmarks.harness import PAYLOAD, Row, Scale, scratch
from benchmarks.latency import one_way
from benchmarks.latency.pair import Sender, Shared, begin_receiving, run_pair

GAP_NS = 200_000


def _open_sender(path: Path) -> Sender:
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.bind(f"ipc://{path}")

    def close() -> None:
        socket.close()
        context.term()

    return Sender(socket.send, PAYLOAD, 0, close)


def _receive(path: Path, spin: bool, shared: Shared) -> None:
    now = time.perf_counter_ns
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.connect(f"ipc://{path}")
    got, recv = shared.got, socket.recv
    begin_receiving(shared)
    i = 0
    while i < shared.count:
        try:
            recv(zmq.NOBLOCK if spin else 0)
        except zmq.Again:
            continue
        got[i] = now()
        i += 1
    socket.close()
    context.term()


def run(scale: Scale) -> list[Row]:
    count = scale.pick(10_000, 200)
    best = {}
    with scratch() as folder:
        for how, spin in (("blocking", False), ("spinning", True)):
            runs = [
                run_pair(
                    count,
                    GAP_NS,
                    lambda p=folder / f"{how}{i}": _open_sender(p),
                    lambda s, p=folder / f"{how}{i}", spin=spin: _receive(p, spin, s),
                )
                for i in range(scale.pick(3, 1))
            ]
            best[how] = min(runs, key=lambda run: run.from_send["p50"])
        ours = min(
            (
                one_way.poll_once(folder / f"ours{i}", scale.pick(100_000, 1_000))
                for i in range(scale.pick(3, 1))
            ),
            key=lambda run: run.from_send["p50"],
        )
    faster = min(best.values(), key=lambda run: run.from_send["p50"])
    return [
        Row(
            "one_way",
            "busy-spin by next(), beside pyzmq, p50",
            ours.from_send["p50"] / 1e3,
            "µs",
            "pyzmq ipc://, the faster",
            faster.from_send["p50"] / 1e3,
            ("≤", 0.05),
        ),
        *(
            Row(
                "one_way",
                f"  pyzmq ipc://, {how}, p50",
                run.from_send["p50"] / 1e3,
                "µs",
                detail={
                    "percentiles": run.from_send,
                    "percentiles_from_schedule": run.from_schedule,
                },
            )
            for how, run in best.items()
        ),
    ]
