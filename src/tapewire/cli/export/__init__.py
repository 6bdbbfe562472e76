"""`tapewire export`: write a log as Parquet, CSV, JSON lines or Arrow."""

from tapewire.cli.export.command import export

__all__ = ["export"]
