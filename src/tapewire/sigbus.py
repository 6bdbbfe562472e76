"""Keeps Tapewire's SIGBUS handler installed in front of faulthandler's.

The handler turns access to a truncated file into `MappingLost`. `faulthandler.enable()` and
`disable()` replace it; the native threads reinstall it within about 100 ms. This module wraps the
two functions to close that interval. Signals that are not Tapewire's still go to faulthandler.
"""

from __future__ import annotations

import faulthandler
import functools
from collections.abc import Callable
from typing import Any

from tapewire._native import guard_against_sigbus_now

__all__ = ["guard_beside_faulthandler"]

_MARK = "_tapewire_guards_sigbus"


def guard_beside_faulthandler() -> None:
    """Wrap `faulthandler.enable` and `faulthandler.disable`; a second call has no effect."""
    for name in ("enable", "disable"):
        original = getattr(faulthandler, name)
        if not hasattr(original, _MARK):
            setattr(faulthandler, name, _guarding(original))


def _guarding(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            guard_against_sigbus_now()

    setattr(call, _MARK, True)
    return call
