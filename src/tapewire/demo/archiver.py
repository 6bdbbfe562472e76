"""The archiver: `tapewire archive tap` on the bus, as one would run it anywhere.

It knows nothing of the demo. This module only ties it to the driver's life, and becomes it.
"""

from __future__ import annotations

import os
import sys

from tapewire.demo.places import SEGMENT_BYTES
from tapewire.demo.process import Process, main

__all__ = ["run"]


def run(process: Process) -> None:
    """Become the command; to be killed with the driver survives that."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what it says is for its log
    places = process.places
    command = [sys.executable, "-m", "tapewire.cli", "archive", "tap", str(places.root)]
    options = ["--to", str(places.archive), "--segment-bytes", str(SEGMENT_BYTES)]
    os.execv(sys.executable, [*command, *options])


if __name__ == "__main__":
    main(run)
