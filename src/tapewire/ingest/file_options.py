"""What the importers of files, as opposed to captures, have in common among their options."""

from __future__ import annotations

from dataclasses import dataclass

from tapewire.errors import InvalidOption
from tapewire.ingest.importer import ImportOptions

__all__ = ["FileOptions"]


@dataclass(frozen=True, kw_only=True)
class FileOptions(ImportOptions):
    """Options of files in which a vendor or an exchange keeps its own account.

    Their rows are no messages of a wire: `keep_wire` is refused.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_wire:
            raise InvalidOption(
                "these files hold rows, not a wire's messages: keep_wire=True",
                hint="keep the files themselves",
            )
