"""Spark jobs over logs and archives: functions of a Spark session, a source and a target.

A job consists of parts, mostly a venue, symbol and day. A finished part is recorded next to the
target. Run again, a job builds the parts that are missing, and those whose input or options have
changed. `Summary` reports what was done.
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
