"""``python -m tapewire.spark pack FILE.tar.gz [PACKAGE …]``: see `tapewire.spark.pack`."""

from __future__ import annotations

import sys

from tapewire.errors import InvalidOption
from tapewire.spark.sessions.packed_environment import pack


def _main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "pack" or arguments[1].startswith("-"):
        print("usage: python -m tapewire.spark pack FILE.tar.gz [PACKAGE …]", file=sys.stderr)
        return 2
    try:
        path = pack(*arguments[1:])
    except (InvalidOption, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
