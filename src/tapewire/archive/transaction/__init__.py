"""Batches of records into an archive, all or none: staged, decided by a manifest, then published.

Nothing here depends on Spark; the sink `tapewire` stages in its tasks and commits on its driver.
"""

from tapewire.archive.record_columns import RecordColumns
from tapewire.archive.transaction.digest import Digest
from tapewire.archive.transaction.publish import Archive
from tapewire.archive.transaction.staging import StagedRun, StagingOptions, StagingTask

__all__ = ["Archive", "Digest", "RecordColumns", "StagedRun", "StagingOptions", "StagingTask"]
