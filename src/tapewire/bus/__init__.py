"""The bus: processes on one host find and watch each other through files.

There is no server, no registry and no thread: all calls poll.
"""

from tapewire.bus._native import FanInReader, SourceCounts
from tapewire.bus.cpu_affinity import pin_to_core
from tapewire.bus.discovery import Added, Removed, RouterDiscovery
from tapewire.bus.feeds import Feed, MissingFeeds, load_feeds
from tapewire.bus.handover import Handover
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
    clear_lease,
    clear_ready,
    is_ready,
    mark_ready,
    read_lease,
    write_lease,
)
from tapewire.bus.registration import ReaderRegistration
from tapewire.bus.subscription import Connected, Disconnected, SubscriberDiscovery, Waiting

__all__ = [
    "Added",
    "ArchiveLayout",
    "Connected",
    "Disconnected",
    "FanInReader",
    "Feed",
    "Handover",
    "Layout",
    "Lease",
    "LeaseWatch",
    "MissingFeeds",
    "OrdersLayout",
    "ReaderRegistration",
    "Removed",
    "RouterDiscovery",
    "SourceCounts",
    "StrategyEndpoints",
    "StreamsLayout",
    "SubscriberDiscovery",
    "Waiting",
    "clear_lease",
    "clear_ready",
    "is_ready",
    "load_feeds",
    "mark_ready",
    "pin_to_core",
    "read_lease",
    "write_lease",
]
