"""The Java that Spark runs on: found and judged before Spark's scripts fail over it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from tapewire.errors import JavaUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OLDEST", "require_java"]

OLDEST = 17  # what Spark 4 is compiled for

_INSTALL = (
    f"install one (Debian, Ubuntu: apt-get install openjdk-{OLDEST}-jre-headless; Fedora: dnf "
    f"install java-{OLDEST}-openjdk-headless) or set JAVA_HOME to where one is"
)


def require_java(environ: Mapping[str, str] | None = None) -> int:
    """The version of the Java that Spark will start, looked for as its scripts do.

    Raises:
        JavaUnusable: There is none, it does not run, or it is older than 17.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home:
        java: str | None = os.path.join(home, "bin", "java")
        if shutil.which(str(java)) is None:
            raise JavaUnusable(
                f"JAVA_HOME must be a folder with bin/java: JAVA_HOME={home}",
                hint=f"correct or unset it; where there is no Java, {_INSTALL}",
            )
    else:
        java = shutil.which("java", path=environ.get("PATH"))
        if java is None:
            raise JavaUnusable(
                f"Spark needs Java {OLDEST} or newer: JAVA_HOME is not set and PATH has no java",
                hint=_INSTALL,
            )
    assert java is not None
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaUnusable(f"java must run: {error}", path=java, hint=_INSTALL) from error
    version = major_version(said)
    if version is None:
        first = said.partition("\n")[0]
        raise JavaUnusable(f"java must say its version: {first!r}", path=java, hint=_INSTALL)
    if version < OLDEST:
        raise JavaUnusable(
            f"Spark needs Java {OLDEST} or newer: version={version}", path=java, hint=_INSTALL
        )
    return version


def major_version(said: str) -> int | None:
    """The number in what ``java -version`` says, or None.

    Example:
        >>> major_version('openjdk version "17.0.15" 2025-04-15')
        17
        >>> major_version('java version "1.8.0_402"')
        8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
