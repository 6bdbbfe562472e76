"""What must hold for the tree as a whole."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
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


MOST_LINES = 70  # of a function's body, its docstring not counted


def python_functions(path):
    """``(name, line, lines of the body)`` of each function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node, clean=False) is not None :]
            if body:
                yield node.name, node.lineno, node.end_lineno - body[0].lineno + 1


# What begins, as clang-format lays it out, at the column of a function and is none.
NO_FUNCTION = re.compile(
    r"[#}/]|(?:public|private|protected):|(?:namespace|class|struct|union|enum|extern|template"
    r"|using|static_assert|return|if|for|while|switch|do|try|else|case|TEST|litmus::race)\b"
)


def cpp_functions(path):
    """The same, by the columns of clang-format: at the margin, or four in, inside a class."""
    lines = path.read_text().splitlines()
    for indent in ("", "    "):
        at = 0
        while at < len(lines):
            text = lines[at].removeprefix(indent)
            if not lines[at].startswith(indent) or not text.strip() or text[0] == " ":
                at += 1
                continue
            head = at
            while head + 1 < len(lines) and not lines[head].endswith(("{", ";", "}")):
                head += 1
            if NO_FUNCTION.match(text) or not lines[head].endswith("{"):
                at = head + 1 if not NO_FUNCTION.match(text) else at + 1
                continue
            end = head + 1
            while end < len(lines) and not lines[end].startswith(indent + "}"):
                end += 1
            if "(" in "".join(lines[at : head + 1]):
                yield text[:40], at + 1, end - head - 1
            at = end + 1


def test_functions_do_one_thing():
    """A file is split where its subject changes; a function that is long does several things."""
    readers = {".py": python_functions, ".hpp": cpp_functions, ".cpp": cpp_functions}
    counted, long = 0, []
    for path in tracked_files():
        for name, line, lines in readers.get(path.suffix, lambda _: ())(path):
            counted += 1
            if lines > MOST_LINES:
                long.append(f"{path.relative_to(ROOT)}:{line}: {name}: {lines} lines")
    assert long == []
    assert counted > 5_000  # both kinds are found


def test_a_class_name_means_one_thing():
    places = defaultdict(list)
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    found = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert found.keys() == KNOWN_TWINS, found


# Of orders and of market data, whose messages store other values for it.
KNOWN_TWINS = {"Side"}


def test_the_map_of_the_architecture_names_every_package_and_nothing_else():
    page = (ROOT / "docs/internals/ARCHITECTURE.md").read_text()
    package = ROOT / "src/tapewire"
    there = {path.parent.name for path in package.glob("*/__init__.py")}
    layers = page[page.index("## The layers") : page.index("## Code map")]
    named = set()
    for entry in re.findall(r"^tapewire/(\{[\w,]+\}|\w+)/", layers, re.MULTILINE):
        named.update(entry.strip("{}").split(","))
    assert named == there
    sections = re.findall(r"^### (.*)$", page, re.MULTILINE)
    for folder in re.findall(r"`src/tapewire/(\w+)/`", "\n".join(sections)):
        assert (package / folder).is_dir(), folder


# What pages say instead is in docs/glossary.md and in the guide for contributors.
ODD_WORDS = re.compile(
    r"\b(?:anew|are told|folders?|for ever|in earnest|is told|kept aside|mend(?:ed|ing|s)?|nobody"
    r"|not to be believed|stands? aside|to heed)\b",
    re.IGNORECASE,
)


def prose(page):
    """``(number, line)`` of a page's lines, without code, links' targets and directives."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(":::"):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def test_pages_are_in_plain_english():
    found = [
        f"{page.relative_to(ROOT)}:{number}: {word[0]}"
        for page in tracked_files()
        if page.suffix == ".md"
        for number, line in prose(page)
        if (word := ODD_WORDS.search(line))
    ]
    assert found == []


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
