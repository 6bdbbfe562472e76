"""The paths of the demo's queues, and who writes each.

```text
streams/raw/demo/queue          exchange → all others  changes of the book, trades
exchange/wal                    exchange → itself      accepted inputs, checkpoints
exchange/fills                  exchange → router      acknowledgements and fills
router/orders                   router   → exchange    the strategies' orders, in one sequence
orders/queue/NAME/orders_out    strategy → router      orders, cancels, and fills it has counted
orders/queue/NAME/orders_in     router   → strategy    its acknowledgements and fills
archive/raw/v1/demo/DATE/raw    archiver → Spark       the archived market data
```
"""

from __future__ import annotations

import os
from pathlib import Path

from tapewire.bus import Layout, StrategyEndpoints
from tapewire.protocol.instruments import Instrument

__all__ = ["INSTRUMENT", "SEGMENT_BYTES", "SYMBOL", "VENUE", "DemoPaths"]

VENUE = "demo"
SYMBOL = "TAPE"
# A tick is a cent and a lot a thousandth: precise enough for captures of real markets.
INSTRUMENT = Instrument.of(VENUE, SYMBOL, price_scale=2, size_scale=3)
SEGMENT_BYTES = 4 << 20  # small, so that queues roll during a run of a few seconds


class DemoPaths:
    """The queues and directories below one root."""

    def __init__(self, root: str | os.PathLike[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self.root = Path(root)
        self.segment_bytes = segment_bytes
        self.layout = Layout(root)
        self.raw = self.layout.streams.raw(VENUE)
        self.wal = self.root / "exchange" / "wal"
        self.fills = self.root / "exchange" / "fills"
        self.orders = self.root / "router" / "orders"
        self.archive = self.root / "archive"
        # Written by Spark.
        self.clean = self.root / "refined"
        self.features = self.root / "features"
        self.quality = self.root / "quality"
        self.close_session = self.root / "exchange" / "CLOSE"  # a file, so it survives a kill

    def strategy(self, name: str) -> StrategyEndpoints:
        """The two queues of a strategy."""
        return self.layout.orders.strategy(name)

    def strategies(self) -> list[str]:
        """Names of the strategies that have queues, sorted."""
        return self.layout.orders.strategies()

    def all(self) -> dict[str, Path]:
        """Every queue by a short name, in the order in which data passes through them."""
        ends = {name: self.strategy(name) for name in self.strategies()}
        return {
            "market data": self.raw,
            **{f"{name} out": end.orders_out for name, end in ends.items()},
            "router": self.orders,
            "exchange WAL": self.wal,
            "fills": self.fills,
            **{f"{name} in": end.orders_in for name, end in ends.items()},
        }
