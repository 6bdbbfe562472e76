"""The available importers, by name; a module is loaded when its importer is used."""

from __future__ import annotations

import importlib
from typing import cast

from tapewire.errors import InvalidOption
from tapewire.ingest.importer import Importer

__all__ = ["IMPORTERS", "importer_class"]

IMPORTERS: dict[str, str] = {
    "binance-spot": "tapewire.ingest.formats.binance:BinanceSpot",
    "binance-usdm": "tapewire.ingest.formats.binance:BinanceUsdm",
    "bitget": "tapewire.ingest.formats.bitget:Bitget",
    "coinbase": "tapewire.ingest.formats.coinbase:Coinbase",
    "dbn": "tapewire.ingest.formats.dbn:Dbn",
    "itch": "tapewire.ingest.formats.itch:Itch",
    "lobster": "tapewire.ingest.formats.lobster:Lobster",
    "okx": "tapewire.ingest.formats.okx:Okx",
    "sse": "tapewire.ingest.formats.sse:Sse",
    "szse": "tapewire.ingest.formats.szse:Szse",
    "tardis": "tapewire.ingest.formats.tardis:Tardis",
}


def importer_class(name: str) -> type[Importer]:
    """The class of an importer.

    Raises:
        InvalidOption: There is no importer of that name.
    """
    if name not in IMPORTERS:
        raise InvalidOption(
            f"no such importer: format={name!r}",
            hint=f"use one of {', '.join(sorted(IMPORTERS))}",
        )
    module, _, attribute = IMPORTERS[name].partition(":")
    return cast(type[Importer], getattr(importlib.import_module(module), attribute))
