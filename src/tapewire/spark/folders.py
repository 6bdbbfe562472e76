"""Where jobs and the sink keep what is theirs, below what they write."""

from tapewire.bus.layout import CONTROL

__all__ = ["CONTROL"]
