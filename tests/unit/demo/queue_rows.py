"""Queues as lists of rows, to write what a kill leaves."""

import random

import tapewire as tw
from tapewire.demo.events import Cancel, Close, New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.participants import Participants
from tapewire.demo.queue_records import records

SMALL = 1 << 16  # bytes of a segment, since many queues are created


def rows(path):
    """(seq, type_id, payload) of every record."""
    return [row[:3] for row in timed_rows(path)]


def timed_rows(path):
    """(seq, type_id, payload, timestamp_ns) of every record."""
    return [(r.seq, r.type_id, bytes(r.payload), r.timestamp_ns) for r in records(path)]


def write(path, recorded, *, sparse=False):
    """Write a queue with these rows, with or without times; `sparse` keeps their `seq`."""
    with tw.open_publisher(path, segment_bytes=SMALL, sparse=sparse) as writer:
        for seq, type_id, payload, *time_ns in recorded:
            writer.append(type_id, payload, *time_ns, seq=seq if sparse else None)


def session(seed, length):
    """Yield (input, input_seq): the participants and two strategies that trade."""
    choose = random.Random(seed)
    engine, participants = Engine(), Participants(seed)
    numbers = {"": 0, "router": 0}
    for _ in range(length):
        owner = choose.choice(["", "", "alpha", "beta"])
        source = "router" if owner else ""
        number = numbers[source]
        if not owner:
            what = participants.next(engine, number)
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
