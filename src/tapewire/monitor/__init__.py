"""What a person watches: every queue of a bus, live, on a terminal, as a page, by Prometheus.

`Watch` looks at the files of a bus and keeps what it saw; `terminal`, `web` and `exporter` show it.
Nothing here writes to a bus or disturbs who works on it.
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
