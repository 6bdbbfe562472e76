"""Bars of trades: time, tick, volume and dollar bars, in exact scaled integers.

`from_log` reads a log of trades, `from_trades` takes a table of trades, and `BarBuilder` takes
numpy columns as they arrive. None of them needs Spark; the job `tapewire etl bars` runs the same
code for every symbol's day.
"""

from tapewire.bars.builder import KINDS, Bar, BarBuilder, BarSpec
from tapewire.bars.table import SCHEMA, day_bars, from_log, from_trades

__all__ = ["KINDS", "SCHEMA", "Bar", "BarBuilder", "BarSpec", "day_bars", "from_log", "from_trades"]
