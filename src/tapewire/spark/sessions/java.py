"""Checks the Java that Spark will use, before Spark's scripts fail with a less helpful error."""

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

OLDEST = 17  # the version that Spark 4 is compiled for

_INSTALL = (
    f"install one (Debian, Ubuntu: apt-get install openjdk-{OLDEST}-jre-headless; Fedora: dnf "
    f"install java-{OLDEST}-openjdk-headless) or set JAVA_HOME to an installed one"
)


def require_java(environ: Mapping[str, str] | None = None) -> int:
    """The version of the Java that Spark will start, found in the way of Spark's scripts.

    Raises:
        JavaUnusable: Java is missing, does not run, or is older than 17.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home:
        java: str | None = os.path.join(home, "bin", "java")
        if shutil.which(str(java)) is None:
            raise JavaUnusable(
                f"JAVA_HOME must be a directory with bin/java: JAVA_HOME={home}",
                hint=f"correct or unset it; if there is no Java, {_INSTALL}",
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
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaUnusable(f"java does not run: {error}", path=java, hint=_INSTALL) from error
    version = major_version(output)
    if version is None:
        first = output.partition("\n")[0]
        raise JavaUnusable(f"java prints no version: {first!r}", path=java, hint=_INSTALL)
    if version < OLDEST:
        raise JavaUnusable(
            f"Spark needs Java {OLDEST} or newer: version={version}", path=java, hint=_INSTALL
        )
    return version


def major_version(output: str) -> int | None:
    """The major version in the output of ``java -version``, or None.

    Example:
        >>> major_version('openjdk version "17.0.15" 2025-04-15')
        17
        >>> major_version('java version "1.8.0_402"')
        8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None
