"""What must hold for the tree as a whole."""

import re
import subprocess
import sys
from pathlib import Path

import tapewire

ROOT = Path(__file__).resolve().parents[2]
TEXT = {
    ".py",
    ".pyx",
    ".pxd",
    ".pyi",
    ".hpp",
    ".cpp",
    ".md",
    ".toml",
    ".txt",
    ".yml",
    ".yaml",
    ".sh",
    ".java",
    ".xml",
}


def tracked_files():
    """Files of the repository, or of the tree where there is no repository (an sdist)."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        return [ROOT / name for name in listed if (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file()]


def test_no_file_names_a_registry_or_a_path_of_one_machine():
    machine = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")
    registry = re.compile(
        "|".join(["pypi", "registry.npmjs", "repo1.maven", "crates"]) + r"\.(?:org|io)"
    )
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT and path.name not in {"Makefile", "run"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if path != Path(__file__).resolve() and (machine.search(line) or registry.search(line)):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_source_files_can_be_held_in_one_head():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked_files()
        if path.suffix in {".py", ".pyx", ".pxi", ".hpp", ".cpp", ".java"}
        and (lines := len(path.read_text().splitlines())) > 600
    }
    assert long == {}


def test_every_public_name_is_documented():
    undocumented = [
        name for name in tapewire.__all__ if not (getattr(tapewire, name).__doc__ or "").strip()
    ]
    assert undocumented == []


def test_importing_tapewire_needs_nothing_but_the_standard_library():
    # numpy, the one dependency, is imported when a column is asked for.
    program = (
        "import sys; before = set(sys.modules); import tapewire; "
        "print('\\n'.join(sorted({m.split('.')[0] for m in set(sys.modules) - before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    names = {name for name in done.stdout.split() if "cython" not in name} - {"tapewire"}
    assert names - sys.stdlib_module_names == set()
