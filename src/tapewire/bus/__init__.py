"""The bus: how processes on one host find, join and watch each other, by files alone.

No server, no registry, no thread: everything here looks when it is asked to.
"""

from tapewire.bus.layout import (
    ArchiveLayout,
    Layout,
    OrdersLayout,
    StrategyEndpoints,
    StreamsLayout,
)
from tapewire.bus.markers import (
    Lease,
    LeaseWatch,
    clear_ready,
    is_ready,
    mark_ready,
    read_lease,
    write_lease,
)

__all__ = [
    "ArchiveLayout",
    "Layout",
    "Lease",
    "LeaseWatch",
    "OrdersLayout",
    "StrategyEndpoints",
    "StreamsLayout",
    "clear_ready",
    "is_ready",
    "mark_ready",
    "read_lease",
    "write_lease",
]
