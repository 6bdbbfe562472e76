"""The importers there are, by name; a module is loaded when its importer is used."""

from __future__ import annotations

import importlib
from typing import cast

from tapewire.errors import InvalidOption
from tapewire.ingest.model import Importer

__all__ = ["IMPORTERS", "importer_class"]

IMPORTERS: dict[str, str] = {
    "binance-spot": "tapewire.ingest.binance:BinanceSpot",
    "binance-usdm": "tapewire.ingest.binance:BinanceUsdm",
    "bitget": "tapewire.ingest.bitget:Bitget",
    "coinbase": "tapewire.ingest.coinbase:Coinbase",
    "dbn": "tapewire.ingest.dbn:Dbn",
    "itch": "tapewire.ingest.itch:Itch",
    "lobster": "tapewire.ingest.lobster:Lobster",
    "okx": "tapewire.ingest.okx:Okx",
    "sse": "tapewire.ingest.sse:Sse",
    "szse": "tapewire.ingest.szse:Szse",
    "tardis": "tapewire.ingest.tardis:Tardis",
}


def importer_class(name: str) -> type[Importer]:
    """The class of an importer.

    Raises:
        InvalidOption: There is none of that name.
    """
    if name not in IMPORTERS:
        raise InvalidOption(
            f"no importer has this name: format={name!r}",
            hint=f"there are {', '.join(sorted(IMPORTERS))}",
        )
    module, _, attribute = IMPORTERS[name].partition(":")
    return cast(type[Importer], getattr(importlib.import_module(module), attribute))
