"""Queues as lists of rows, written and read whole: how a test makes what a kill leaves."""

import random

import tapewire as tw
from tapewire.demo.crowd import Crowd
from tapewire.demo.events import Cancel, Close, New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.tape import records

SMALL = 1 << 16  # bytes of a segment: many queues are made, and each is soon full


def rows(path):
    """(seq, type_id, payload) of every record."""
    return [row[:3] for row in timed_rows(path)]


def timed_rows(path):
    """The same with the time of each, where that is part of what must be right."""
    return [(r.seq, r.type_id, bytes(r.payload), r.timestamp_ns) for r in records(path)]


def write(path, tape, *, sparse=False):
    """A queue that holds these rows, timed or not; their numbers are kept in a sparse one."""
    with tw.open_publisher(path, segment_bytes=SMALL, sparse=sparse) as writer:
        for seq, type_id, payload, *time_ns in tape:
            writer.append(type_id, payload, *time_ns, seq=seq if sparse else None)


def session(seed, length):
    """(input, input_seq) as an exchange may get them: a crowd and two strategies that trade."""
    choose = random.Random(seed)
    engine, crowd = Engine(), Crowd(seed)
    numbers = {"": 0, "router": 0}
    for _ in range(length):
        owner = choose.choice(["", "", "alpha", "beta"])
        source = "router" if owner else ""
        number = numbers[source]
        if not owner:
            what = crowd.next(engine, number)
        elif choose.random() < 0.3:
            what = Cancel(owner, choose.randint(1, number + 1))
        else:
            side = choose.choice(list(Side))
            price = round(100_000 + choose.uniform(-4, 4))
            what = New(owner, number + 1, side, price, choose.randint(1, 9), choose.random() < 0.3)
        numbers[source] += 1
        engine.apply(what)
        yield what, number
    yield Close(), numbers[""]
