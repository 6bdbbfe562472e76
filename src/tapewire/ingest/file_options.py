"""Common options of importers of files, as opposed to captures."""

from __future__ import annotations

from dataclasses import dataclass

from tapewire.errors import InvalidOption
from tapewire.ingest.importer import ImportOptions

__all__ = ["FileOptions"]


@dataclass(frozen=True, kw_only=True)
class FileOptions(ImportOptions):
    """Options of files that a vendor or an exchange has compiled.

    Their rows are not messages of a feed: `keep_wire` is an error.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_wire:
            raise InvalidOption(
                "these files hold rows, not messages of a feed: keep_wire=True",
                hint="keep the files themselves",
            )
