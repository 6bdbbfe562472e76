"""The records of a queue, read by a new anonymous reader."""

import tapewire as tw
from tests.support.entries import entries, payloads


def stored(queue, types=None):
    with tw.open_log(queue, types) as reader:
        return entries(reader)


def stored_payloads(queue):
    with tw.open_log(queue) as reader:
        return payloads(reader)


def fill_segments(writer, segments):
    """Append records until the writer has rolled `segments` times more."""
    wanted = writer.metrics()["rolls"] + segments
    while writer.metrics()["rolls"] < wanted:
        writer.append(1, bytes(960))
