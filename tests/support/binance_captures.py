"""The Binance captures, read without any code of the importer."""

import gzip
import json
from decimal import Decimal

USDM_BTC_2023 = ("usdm_btcusdt_20230404.dat.gz", "usdm_btcusdt_20230405.dat.gz")
USDM_BTC_2024 = ("usdm_btcusdt_20240718.gz", "usdm_btcusdt_20240719.gz")
USDM_ETH_2024 = ("usdm_ethusdt_20240718.gz", "usdm_ethusdt_20240719.gz")
SPOT_BTC_DAY_1 = ("spot_btcusdt_20240808.gz",)
SPOT_BTC = ("spot_btcusdt_20240808.gz", "spot_btcusdt_20240809.gz")


def messages(files, *words):
    """``(line, message)`` of each line; a message of a stream without its envelope.

    With words, only lines that contain one of them: most of a capture is trades and tickers.
    """
    for path in files:
        with gzip.open(path, "rb") as file:
            for line in file:
                if words and not any(word in line for word in words):
                    continue
                document = json.loads(line.partition(b" ")[2])
                yield line.rstrip(b"\n"), document.get("data", document)


def is_diff(message):
    return message.get("e") == "depthUpdate"


def is_snapshot(message):
    return "lastUpdateId" in message


def previous_id(diff):
    """The last id before a diff: futures send it, spot ids are consecutive."""
    return diff.get("pu", diff["U"] - 1)


def tickers(files):
    """Update id → best bid, its size, best ask, its size, from the venue's bookTicker."""
    return {
        message["u"]: tuple(Decimal(message[key]) for key in ("b", "B", "a", "A"))
        for _, message in messages(files)
        if message.get("e", "bookTicker") == "bookTicker" and "A" in message
    }
