"""Finds the error of Tapewire in an exception of Spark."""

from __future__ import annotations

import re

from tapewire import errors
from tapewire.errors import TapewireError

__all__ = ["tapewire_error"]

# The last line of the worker's traceback: the class and the message.
_RAISED = re.compile(r"^(?:\w+\.)*tapewire\.errors\.(\w+): (.*)$", re.MULTILINE)


def tapewire_error(error: Exception) -> TapewireError | None:
    r"""The Tapewire error that caused an exception of Spark; None if another error did.

    Example:
        >>> text = "Traceback …\ntapewire.errors.CorruptRecord: seq=7 [q/1.q at offset 64]"
        >>> tapewire_error(RuntimeError(text))
        CorruptRecord('seq=7 [q/1.q at offset 64]')
    """
    if isinstance(error, TapewireError):
        return error
    found = _RAISED.findall(str(error))
    if not found:
        return None
    name, text = found[-1]
    kind = getattr(errors, name, TapewireError)
    is_ours = isinstance(kind, type) and issubclass(kind, TapewireError)
    return (kind if is_ours else TapewireError)(text.strip())
