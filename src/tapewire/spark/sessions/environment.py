"""This package and all that it needs as one file, for workers that have a bare Python.

What is packed is libraries, not a virtual environment: its interpreter is a link out of the
archive, which Spark refuses to unpack, and Spark starts the same command on the driver, to plan, as
on the workers, to read. A name that each finds on its own ``PATH`` is what both have.
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

__all__ = ["conf_for", "pack", "search_path"]

# Spark brings its own, of the version that the workers run; the jars would be 400 MB of nothing.
_SPARKS_OWN = frozenset({"pyspark", "py4j"})
# Nothing that a worker imports.
_NEEDLESS = frozenset({"__pycache__", "tests", "include"})
_FOLDER = "environment"
_KINDS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}


def pack(target: str | os.PathLike[str], *packages: str) -> Path:
    """Write the installed files of Tapewire, its extra ``spark``, and `packages` into an archive.

    Args:
        target: A file that ends in ``.tar.gz``, ``.tgz`` or ``.tar``; is replaced if it is there.
        packages: Other distributions that workers must import: those that define your messages.

    Returns:
        The path of the archive, for ``session(environment=…)``.

    Raises:
        InvalidOption: A package is not installed, or installed editable: its files are elsewhere.

    Example:
        >>> from tapewire import spark as tws
        >>> tws.pack("environment.tar.gz", "mystrategy")  # doctest: +SKIP
        PosixPath('environment.tar.gz')
    """
    path = Path(target)
    mode = next((mode for end, mode in _KINDS.items() if path.name.endswith(end)), None)
    if mode is None:
        raise InvalidOption(
            f"an archive must end in {', '.join(_KINDS)}: target={path.name!r}", path=str(path)
        )
    files = _files(_required(["tapewire[spark]", *packages]))
    # Beside the target and renamed: a killed `pack` leaves no half archive under its name.
    with tempfile.TemporaryDirectory(prefix=".pack-", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        with tarfile.open(whole, mode) as archive:  # type: ignore[call-overload]
            for name, file in sorted(files.items()):
                archive.add(file, arcname=name, recursive=False)
        whole.replace(path)
    return path


def _required(wanted: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Those distributions and all that they require here, by name."""
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
        if name in _SPARKS_OWN:
            continue
        try:
            distribution = found.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            raise InvalidOption(
                f"what is packed must be installed: package={name}",
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
    """Path in the archive → file, of everything that can be imported."""
    files: dict[str, Path] = {}
    for name, distribution in distributions.items():
        importable = 0
        for listed in distribution.files or ():
            # Scripts lie outside the folder of packages: ../../bin/tapewire.
            if listed.parts[0] in ("..", "/") or _NEEDLESS.intersection(listed.parts[:-1]):
                continue
            file = Path(str(distribution.locate_file(listed)))
            if file.suffix == ".pth" or not file.is_file():
                continue
            importable += ".dist-info" not in listed.parts[0]
            files[str(listed)] = file
        if not importable:
            raise InvalidOption(
                f"what is packed must be installed from a wheel: package={name} is editable",
                hint=f"install it without -e: pip install {name}",
            )
    return files


def conf_for(archive: str | os.PathLike[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Settings with which workers unpack an archive of `pack` and import from it."""
    path = os.fspath(archive)
    if "://" not in path:
        if not Path(path).is_file():
            raise InvalidOption(
                "the packed environment must be there",
                path=path,
                hint="make it with tapewire.spark.pack(…)",
            )
        path = str(Path(path).absolute())
    others = [conf["spark.archives"]] if conf.get("spark.archives") else []
    paths = "spark.executorEnv.PYTHONPATH"
    return {
        "spark.archives": ",".join([*others, f"{path}#{_FOLDER}"]),
        # Relative to where an executor runs, and unpacks.
        paths: os.pathsep.join([_FOLDER, *([conf[paths]] if conf.get(paths) else [])]),
        "spark.pyspark.python": conf.get("spark.pyspark.python", _interpreter()),
    }


def _interpreter() -> str:
    """Its name with the version: native modules are of one version of Python alone."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def search_path(environ: Mapping[str, str]) -> str:
    """``PATH`` for the driver's JVM, on which that name is the interpreter that runs now."""
    here = str(Path(sys.executable).parent)
    if shutil.which(_interpreter(), path=here) is None:
        raise InvalidOption(
            f"this interpreter must go by its version too: {_interpreter()} is not beside it",
            path=sys.executable,
            hint="use a virtual environment (python -m venv): it has that name",
        )
    return os.pathsep.join([here, environ.get("PATH", os.defpath)])
