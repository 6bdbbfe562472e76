"""The snapshotter: `tapewire snapshotter` on the market data, as in any other system.

This module only arranges that it ends with the driver, and then executes the command.
"""

from __future__ import annotations

import os
import sys

from tapewire.demo.process import Process, main

__all__ = ["run"]

_POLICY = ("--seconds", "0.5", "--records", "5000", "--keep", "0")


def run(process: Process) -> None:
    """Execute the command; the arrangement to be killed with the driver survives `exec`."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # its output goes to its log
    command = [sys.executable, "-m", "tapewire.cli", "snapshotter", str(process.paths.raw)]
    os.execv(sys.executable, [*command, *_POLICY])


if __name__ == "__main__":
    main(run)
