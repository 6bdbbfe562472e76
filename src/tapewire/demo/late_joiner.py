"""The late joiner: starts in the middle of a session and has the complete book at once.

It reads no history: it loads the latest snapshot that `tapewire snapshotter` has saved, and replays
the records after it.
"""

from __future__ import annotations

import time

from tapewire.demo.books import join
from tapewire.demo.messages import SessionClosed
from tapewire.demo.process import Process, main
from tapewire.queue import open_subscriber

__all__ = ["run"]


def run(process: Process) -> None:
    """Join the market data, follow them to the close, report the hash of the book."""
    began = time.perf_counter()
    path = process.paths.raw
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
                reader.commit()  # for monitors of our lag
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
