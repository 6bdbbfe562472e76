"""The snapshotter: `tapewire snapshotter` on the market data, as one would run it anywhere.

It knows nothing of the demo. This module only ties it to the driver's life, and becomes it.
"""

from __future__ import annotations

import os
import sys

from tapewire.demo.process import Process, main

__all__ = ["run"]

_EVERY = ("--seconds", "0.5", "--records", "5000", "--keep", "0")


def run(process: Process) -> None:
    """Become the command; to be killed with the driver survives that."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what it says is for its log
    command = [sys.executable, "-m", "tapewire.cli", "snapshotter", str(process.places.raw)]
    os.execv(sys.executable, [*command, *_EVERY])


if __name__ == "__main__":
    main(run)
