"""The quality of logs: measures of one symbol's day, in one pass and bounded memory.

It does not need Spark; the job `quality` runs `measure` for every part.
"""

from tapewire.quality.limits import QualityLimits
from tapewire.quality.measure import DayLogs, DayMeasures, measure
from tapewire.quality.measured_day import MeasuredDay, measure_day

__all__ = ["DayLogs", "DayMeasures", "MeasuredDay", "QualityLimits", "measure", "measure_day"]
