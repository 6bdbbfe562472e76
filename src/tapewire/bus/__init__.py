"""The control plane: where processes find, join and watch each other."""

from tapewire.bus._native import FanInReader, SourceCounts

__all__ = ["FanInReader", "SourceCounts"]
