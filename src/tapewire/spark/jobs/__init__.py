"""Jobs over tapes: each a function of a Spark session, a source and a target.

Every job is done in parts (a venue, symbol and day). A part that is done is marked beside the
target; a job that was killed goes on with the others when it is run again, and a part whose input
or options have changed is done anew. `Summary` says what was done.
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
