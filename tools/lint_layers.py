"""Run import-linter over the whole package, Cython modules included.

import-linter reads only .py files: it would treat `from tapewire._native import Record` as an
import of `tapewire` itself, and would not see the imports of a .pyx. So it gets a mirror of the
package in which every .pyx is a .py with only its imports and cimports.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = re.compile(
    r"^[ \t]*(from[ \t]+[\w.]+[ \t]+c?import[ \t]+(?:\([^)]*\)|[^\n(]+)"
    r"|c?import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?)[ \t]*(?:\#[^\n]*)?$",
    re.MULTILINE,
)


def imports_of(cython_source: str) -> str:
    """Return the import statements of a .pyx or .pxd as Python source."""
    statements = (match[1] for match in IMPORTS.finditer(cython_source))
    return "".join(re.sub(r"\bcimport\b", "import", text, count=1) + "\n" for text in statements)


def mirror(source: Path, target: Path) -> None:
    """Copy the Python files of `source`; add a .py for each .pyx, its .pxd included."""
    for file in source.rglob("*.py*"):
        copy = (target / file.relative_to(source)).with_suffix(".py")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".py":
            copy.write_text(file.read_text())
        elif file.suffix in {".pyx", ".pxd"}:
            with copy.open("a") as out:
                out.write(imports_of(file.read_text()))


def main() -> int:
    run = "from importlinter.cli import lint_imports_command as run; run()"
    options = ["--no-cache", "--no-logo", "--config", str(ROOT / "pyproject.toml")]
    with tempfile.TemporaryDirectory() as directory:
        mirror(ROOT / "src", Path(directory))
        # -S disables the import hook of the editable install, so that the mirror is found.
        path = os.pathsep.join([directory, sysconfig.get_path("purelib")])
        return subprocess.run(
            [sys.executable, "-S", "-c", run, *options],
            env={**os.environ, "PYTHONPATH": path},
            cwd=directory,
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
