"""The available importers, by name; a module is loaded when its importer is used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, cast

from tapewire.errors import InvalidOption
from tapewire.ingest.importer import Importer, ImportOptions

__all__ = ["IMPORTERS", "importer_class", "importer_options"]

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


def importer_options(name: str, given: Mapping[str, Any]) -> ImportOptions:
    """The options of an importer, checked.

    Raises:
        InvalidOption: There is no importer of that name, it has no such option, or a value is
            invalid.
    """
    kind = importer_class(name).Options
    known = [field.name for field in dataclasses.fields(kind)]
    for option in given:
        if option not in known:
            raise InvalidOption(
                f"no such option of this importer: format={name!r}, option={option!r}",
                hint=f"it has {', '.join(known)}",
            )
    return kind(**given)
