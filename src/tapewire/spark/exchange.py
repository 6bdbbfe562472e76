"""Two folders change places in one step: how a new log or table takes over from the old one."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from tapewire.errors import StorageError

__all__ = ["exchange"]

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change places; False where the filesystem cannot (NFS): nothing has changed.

    Raises:
        StorageError: It could not be done.

    Example:
        >>> for name in ("old", "new"):
        ...     (tmp / name).mkdir()
        ...     _ = (tmp / name / "content").write_text(name)
        >>> exchange(tmp / "new", tmp / "old"), (tmp / "old/content").read_text()
        (True, 'new')
    """
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise StorageError(
        f"a folder cannot be replaced: {os.strerror(code)}", path=os.fspath(other), errno=code
    )
