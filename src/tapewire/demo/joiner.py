"""The late joiner: comes in the middle of a session and has the whole book at once.

It reads no history: a `tapewire snapshotter` beside the exchange has saved the book now and then,
and what has changed since lies right behind the record that the latest one is of.
"""

from __future__ import annotations

import time

from tapewire.demo.books import join
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
        records = 0
        joined = False
        while not process.stopping:
            batch = reader.read_batch()
            if not len(batch):
                if not joined:
                    joined = True
                    process.say(
                        "joined",
                        snapshot=snapshot_seq,
                        replayed=records,
                        seconds=time.perf_counter() - began,
                        seq=reader.last_seq if records else snapshot_seq,
                        hash=book.hash(),
                    )
                reader.commit()  # caught up: so far, for whoever watches our lag
                reader.wait(timeout=0.1)
                continue
            book.apply_batch(batch)
            records += len(batch)
            if SessionClosed.type_id in batch.type_id:
                reader.commit()
                process.say("closed", hash=book.hash(), followed=records)
                return


if __name__ == "__main__":
    main(run)
