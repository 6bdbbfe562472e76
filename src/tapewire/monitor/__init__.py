"""Live monitoring of all queues of a bus: on a terminal, as a web page, by Prometheus.

`Watch` samples the files of a bus and keeps a history; `terminal`, `web` and `exporter` show it.
Nothing here writes to a bus or disturbs the processes that use it.
"""

from tapewire.monitor.alerts import Alert, Limits
from tapewire.monitor.sampler import Watch
from tapewire.monitor.snapshot import Filesystem, QueueView, ReaderView, Snapshot, WriterView

__all__ = [
    "Alert",
    "Filesystem",
    "Limits",
    "QueueView",
    "ReaderView",
    "Snapshot",
    "Watch",
    "WriterView",
]
