"""What must hold for the tree as a whole."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import tapewire
from tests.tidy.texts import ROOT, tracked_files

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


# One for orders, one for market data: their messages store other values for it.
KNOWN_TWINS = {"Side"}


def test_a_name_of_a_test_file_means_one_thing():
    """`tests/unit` mirrors the packages of `src`, and may repeat a name; the others may not."""
    places = defaultdict(list)
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "unit" not in path.relative_to(ROOT).parts:
            places[path.name].append(str(path.relative_to(ROOT)))
    assert [paths for paths in places.values() if len(paths) > 1] == []


def test_the_smoke_test_of_the_wheels_imports_every_extension_module():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    imported = set(
        re.findall(r"tapewire(?:\.\w+)+", config["tool"]["cibuildwheel"]["test-command"])
    )
    source = ROOT / "src"
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.pyx")
    }
    assert modules
    assert imported == modules


def test_every_decision_is_in_the_navigation_and_on_the_page_that_lists_them():
    directory = ROOT / "docs/internals/decisions"
    pages = {path.name for path in directory.glob("*.md")} - {"index.md"}
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (directory / "index.md").read_text()))
    shown = re.findall(r"internals/decisions/([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text())
    assert pages
    assert listed == pages == set(shown) - {"index.md"}


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
    for directory in re.findall(r"`src/tapewire/(\w+)/`", "\n".join(sections)):
        assert (package / directory).is_dir(), directory


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
