"""Two processes on two cores, from the package: `tapewire bench` uses them as well."""

from tapewire.bench.pair import (
    STAMP,
    OpenSender,
    Shared,
    Trips,
    begin_receiving,
    end_receiving,
    run_flow,
    run_pair,
    sleep_nearly_until,
)

__all__ = [
    "STAMP",
    "OpenSender",
    "Shared",
    "Trips",
    "begin_receiving",
    "end_receiving",
    "run_flow",
    "run_pair",
    "sleep_nearly_until",
]
