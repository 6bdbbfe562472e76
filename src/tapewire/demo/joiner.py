"""The late joiner: comes in the middle of a session and has the whole book at once.

It reads no history: the exchange's last checkpoint is a record of the market data like any other,
and what has changed since lies right behind it.
"""

from __future__ import annotations

import time

from tapewire.demo.levels import join
from tapewire.demo.messages import SessionClosed
from tapewire.demo.process import Process, main
from tapewire.queue import open_subscriber

__all__ = ["run"]


def run(process: Process) -> None:
    """Join, follow to the close, tell the hash of the book."""
    began = time.perf_counter()
    path = process.places.raw
    with open_subscriber(path, process.settings.name, create_timeout=10.0) as reader:
        book, snapshot_seq = join(reader, path)
        replayed = 0
        joined = False
        while not process.stopping:
            record = reader.next()
            if record is None:
                if not joined:
                    joined = True
                    seconds = time.perf_counter() - began
                    process.say("joined", snapshot=snapshot_seq, replayed=replayed, seconds=seconds)
                reader.commit()  # caught up: so far, for whoever watches our lag
                reader.wait(timeout=0.1)
                continue
            book.apply(record)
            replayed += 1
            if record.type_id == SessionClosed.type_id:
                process.say("closed", hash=book.hash(), followed=replayed)
                return


if __name__ == "__main__":
    main(run)
