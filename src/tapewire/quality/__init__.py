"""What a tape is worth: measures of one symbol's day, in one pass and bounded memory.

Nothing here knows Spark; the job `quality` runs `measure` for every part, on any machine.
"""

from tapewire.quality.limits import QualityLimits
from tapewire.quality.measure import DayLogs, DayMeasures, measure
from tapewire.quality.measured_day import MeasuredDay, measure_day

__all__ = ["DayLogs", "DayMeasures", "MeasuredDay", "QualityLimits", "measure", "measure_day"]
