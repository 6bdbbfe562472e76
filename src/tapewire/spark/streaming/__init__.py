"""Logs as streams: offsets, pinned readers, and books that go on from batch to batch."""
