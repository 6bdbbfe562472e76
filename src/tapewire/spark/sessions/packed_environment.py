"""Tapewire and its dependencies as one archive, for workers that have only Python.

The archive contains libraries, not a virtual environment, for two reasons. The interpreter of a
virtual environment is a link that leads out of the archive, which Spark refuses to unpack. And
Spark starts the same interpreter command on the driver, to plan, as on the workers, to read: a name
that each finds on its own ``PATH`` works on both.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["conf_for", "driver_path", "pack"]

# Workers have these from their Spark installation; the jars would add 400 MB.
_PROVIDED_BY_SPARK = frozenset({"pyspark", "py4j"})
# Directories that workers do not import from.
_OMITTED = frozenset({"__pycache__", "tests", "include"})
_DIRECTORY = "environment"
_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}


def pack(target: str | os.PathLike[str], *packages: str) -> Path:
    """Write the installed files of Tapewire, its extra ``spark``, and `packages` into an archive.

    Args:
        target: A file that ends in ``.tar.gz``, ``.tgz`` or ``.tar``. An existing file is replaced.
        packages: Other distributions that workers must import, such as those that define your
            messages.

    Returns:
        The path of the archive, for ``session(environment=…)``.

    Raises:
        InvalidOption: A package is not installed, or is installed as editable.

    Example:
        >>> from tapewire import spark as tws
        >>> tws.pack("environment.tar.gz", "mystrategy")  # doctest: +SKIP
        PosixPath('environment.tar.gz')
    """
    path = Path(target)
    mode = next((mode for end, mode in _MODES.items() if path.name.endswith(end)), None)
    if mode is None:
        raise InvalidOption(
            f"an archive must end in {', '.join(_MODES)}: target={path.name!r}", path=str(path)
        )
    files = _files(_required(["tapewire[spark]", *packages]))
    # Written next to the target and renamed, so that a killed `pack` leaves no partial archive.
    with tempfile.TemporaryDirectory(prefix=".pack-", dir=path.parent) as directory:
        temporary = Path(directory) / path.name
        with tarfile.open(temporary, mode) as archive:  # type: ignore[call-overload]
            for name, file in sorted(files.items()):
                archive.add(file, arcname=name, recursive=False)
        temporary.replace(path)
    return path


def _required(wanted: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The distributions and all that they require in this environment, by name."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, metadata.Distribution] = {}
    pending = []
    for text in wanted:
        try:
            pending.append(Requirement(text))
        except InvalidRequirement as error:
            raise InvalidOption(f"not the name of a package: package={text!r}") from error
    seen: set[tuple[str, str]] = set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name in _PROVIDED_BY_SPARK:
            continue
        try:
            distribution = found.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            raise InvalidOption(
                f"cannot pack a package that is not installed: package={name}",
                hint=f"pip install {requirement}",
            ) from None
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in distribution.requires or ():
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    pending.append(further)
    return found


def _files(distributions: Mapping[str, metadata.Distribution]) -> dict[str, Path]:
    """Path in the archive → file, for all files that can be imported."""
    files: dict[str, Path] = {}
    for name, distribution in distributions.items():
        importable = 0
        for listed in distribution.files or ():
            # Scripts are outside the directory of packages: ../../bin/tapewire.
            if listed.parts[0] in ("..", "/") or _OMITTED.intersection(listed.parts[:-1]):
                continue
            file = Path(str(distribution.locate_file(listed)))
            if file.suffix == ".pth" or not file.is_file():
                continue
            importable += ".dist-info" not in listed.parts[0]
            files[str(listed)] = file
        if not importable:
            raise InvalidOption(
                f"cannot pack an editable package: package={name}",
                hint=f"install it without -e: pip install {name}",
            )
    return files


def conf_for(archive: str | os.PathLike[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Settings that make workers unpack an archive of `pack` and import from it."""
    path = os.fspath(archive)
    if "://" not in path:
        if not Path(path).is_file():
            raise InvalidOption(
                "no such packed environment",
                path=path,
                hint="create it with tapewire.spark.pack(…)",
            )
        path = str(Path(path).absolute())
    others = [conf["spark.archives"]] if conf.get("spark.archives") else []
    paths = "spark.executorEnv.PYTHONPATH"
    return {
        "spark.archives": ",".join([*others, f"{path}#{_DIRECTORY}"]),
        # Relative to the working directory of the executor, where archives are unpacked.
        paths: os.pathsep.join([_DIRECTORY, *([conf[paths]] if conf.get(paths) else [])]),
        "spark.pyspark.python": conf.get("spark.pyspark.python", _interpreter()),
    }


def _interpreter() -> str:
    """``pythonX.Y``: native modules require one version of Python."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def driver_path(environ: Mapping[str, str]) -> str:
    """``PATH`` for the driver's JVM, on which ``pythonX.Y`` is the running interpreter."""
    here = str(Path(sys.executable).parent)
    if shutil.which(_interpreter(), path=here) is None:
        raise InvalidOption(
            f"the directory of the running interpreter has no {_interpreter()}",
            path=sys.executable,
            hint="use a virtual environment (python -m venv), which has that name",
        )
    return os.pathsep.join([here, environ.get("PATH", os.defpath)])
