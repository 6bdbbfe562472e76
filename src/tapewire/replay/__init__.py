"""Replay: books from logs, from the start, from snapshots, or live.

Example:
    >>> from tapewire import replay
    >>> replay.Every(seconds=10, records=10_000)
    Every(seconds=10, records=10000, bytes=None, roll=False)
"""

from tapewire.replay._native import Step
from tapewire.replay.book_stream import BookStream, book_batches, book_rows
from tapewire.replay.feature_stream import (
    FeatureInfo,
    FeatureStream,
    PythonFeature,
    Row,
    asof,
    describe_features,
    feature,
    feature_batches,
    features,
)
from tapewire.replay.playback import Replay, book_at
from tapewire.replay.snapshots import SkippedFile, SnapshotInfo
from tapewire.replay.snapshotter import Every, Round, Snapshotter

__all__ = [
    "BookStream",
    "Every",
    "FeatureInfo",
    "FeatureStream",
    "PythonFeature",
    "Replay",
    "Round",
    "Row",
    "SkippedFile",
    "SnapshotInfo",
    "Snapshotter",
    "Step",
    "asof",
    "book_at",
    "book_batches",
    "book_rows",
    "describe_features",
    "feature",
    "feature_batches",
    "features",
]
