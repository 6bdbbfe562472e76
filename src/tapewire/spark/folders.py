"""Where jobs and the sink keep what is theirs, below what they write."""

from tapewire.archive.tree import CONTROL

__all__ = ["CONTROL"]
