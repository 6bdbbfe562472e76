"""Validation of names that become directories."""

from __future__ import annotations

import re

from tapewire._native import NAME_RULE, is_name
from tapewire.errors import InvalidName

__all__ = ["check_name"]

_SHOWN = 64  # characters of a name in a message


def check_name(what: str, name: str) -> str:
    """Return a name if it is valid for a directory; the rule is that for names of readers.

    Example:
        >>> check_name("venue", "binance_spot")
        'binance_spot'
        >>> check_name("symbol", "BTC/USDT")
        Traceback (most recent call last):
        tapewire.errors.InvalidName: not a valid symbol: symbol='BTC/USDT'; use 1 to 128 letters, \
digits, '.', '_' or '-', not starting with '.': for example 'BTCUSDT' or 'BTC-USDT'
    """
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be a str: {what}={name!r}", hint=NAME_RULE)
    if is_name(name):
        return name
    shown = repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}… ({len(name)} characters)"
    raise InvalidName(f"not a valid {what}: {what}={shown}", hint=NAME_RULE + _for_example(name))


def _for_example(name: str) -> str:
    without = [re.sub(r"[^A-Za-z0-9._-]+", glue, name).strip(".-") for glue in ("", "-")]
    near = [repr(candidate) for candidate in dict.fromkeys(without) if is_name(candidate)]
    return f": for example {' or '.join(near)}" if near else ""
