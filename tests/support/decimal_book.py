"""A book of Decimals in two dicts: slow, simple, and sharing no code with the engine."""

from decimal import Decimal


class DecimalBook:
    """Absolute levels; a size of 0 removes one."""

    def __init__(self):
        self.bids = {}
        self.asks = {}

    def apply(self, bids, asks):
        for side, levels in ((self.bids, bids), (self.asks, asks)):
            for price_text, size_text, *_ in levels:
                price, size = Decimal(price_text), Decimal(size_text)
                if size:
                    side[price] = size
                else:
                    side.pop(price, None)

    def best(self):
        """``(bid, size, ask, size)``."""
        bid, ask = max(self.bids), min(self.asks)
        return bid, self.bids[bid], ask, self.asks[ask]

    def levels(self):
        """Both sides as a venue's snapshot has them: texts, best first."""
        bids = [[str(p), str(self.bids[p])] for p in sorted(self.bids, reverse=True)]
        return bids, [[str(p), str(self.asks[p])] for p in sorted(self.asks)]
