"""Jobs over logs: functions of a Spark session, a source and a target.

A job consists of parts, usually one for each venue, symbol and day. A part that is done is recorded
below the target. A killed job, run again, does the remaining parts; a part whose input or options
have changed is done again. `Summary` reports what was done.
"""

from tapewire.spark.jobs.bars import bars
from tapewire.spark.jobs.compact import compact
from tapewire.spark.jobs.features import features
from tapewire.spark.jobs.import_files import import_files
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.quality import quality
from tapewire.spark.jobs.refine import refine
from tapewire.spark.jobs.summary import JobFinding, Summary

__all__ = [
    "JobFinding",
    "Progress",
    "Summary",
    "bars",
    "compact",
    "features",
    "import_files",
    "quality",
    "refine",
]
