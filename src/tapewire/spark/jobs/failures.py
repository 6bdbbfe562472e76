"""What an exception of Spark's was on the worker that raised it."""

from __future__ import annotations

import re

from tapewire import errors
from tapewire.errors import TapewireError

__all__ = ["typed"]

# The last line of the worker's traceback: its class, and what it said.
_RAISED = re.compile(r"^(?:\w+\.)*tapewire\.errors\.(\w+): (.*)$", re.MULTILINE)


def typed(error: Exception) -> TapewireError | None:
    r"""Tapewire's own error in an exception of Spark's; None where it is another.

    Example:
        >>> text = "Traceback …\ntapewire.errors.CorruptRecord: seq=7 [q/1.q at offset 64]"
        >>> typed(RuntimeError(text))
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
