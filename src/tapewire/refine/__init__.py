"""Raw multiplexed logs into clean logs, one for each symbol, stream and day; without Spark.

The steps, each a module, in the order in which a record passes them:

1. `raw_units`: which raw logs belong together, and what of them is new.
2. `survey`: what a slice of a raw log holds: clean logs, gaps, damage, the clock.
3. `split`: the records of a slice as rows, each with the clean log that it goes to (`owners`).
4. `judge`: which rows are kept: duplicates, conflicts and late records are not.
5. `finish`: types, gap ledger and snapshots of a clean log whose records are in place.

`ledger` records how far each unit is. `refined_table` runs steps 1 to 4 in this process. The Spark
job `tapewire.spark.jobs.refine` distributes the same functions and writes the logs.
"""

from tapewire.refine.finish import FinishedLog, finish_log
from tapewire.refine.options import LATE_POLICIES, RefineOptions
from tapewire.refine.raw_units import RawUnit, raw_logs, units_of
from tapewire.refine.table import refined_table

__all__ = [
    "LATE_POLICIES",
    "FinishedLog",
    "RawUnit",
    "RefineOptions",
    "finish_log",
    "raw_logs",
    "refined_table",
    "units_of",
]
