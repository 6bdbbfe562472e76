"""The archiver: `tapewire archive tap` on the bus, as in any other system.

This module only arranges that it ends with the driver, and then executes the command.
"""

from __future__ import annotations

import os
import sys

from tapewire.demo.paths import SEGMENT_BYTES
from tapewire.demo.process import Process, main

__all__ = ["run"]


def run(process: Process) -> None:
    """Execute the command; the arrangement to be killed with the driver survives `exec`."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # its output goes to its log
    paths = process.paths
    command = [sys.executable, "-m", "tapewire.cli", "archive", "tap", str(paths.root)]
    options = ["--to", str(paths.archive), "--segment-bytes", str(SEGMENT_BYTES)]
    os.execv(sys.executable, [*command, *options])


if __name__ == "__main__":
    main(run)
