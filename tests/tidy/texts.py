"""What people read in a file: its comments, docstrings and messages, or the prose of a page."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CYTHON = {".pyx", ".pxd", ".pxi"}
CPP = {".cpp", ".hpp", ".c"}

CPP_TEXT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])'""",
    re.DOTALL,
)
CYTHON_TEXT = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r'|(?P<string>"{3}.*?"{3}|\'{3}.*?\'{3}|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')',
    re.DOTALL,
)
# Names and code inside of text: in backquotes, in the braces of an f-string, in a doctest.
CODE = re.compile(r"`[^`]*`|\{[^{}\n]*\}|^ *(?:>>>|\.\.\.) [^\n]*", re.MULTILINE)


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


def lines_outside_code(page):
    """``(number, line)`` of each line of a page that is in no block of code."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def prose(page):
    """The same, without inline code, targets of links, and directives."""
    for number, line in lines_outside_code(page):
        if not line.startswith(":::"):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def _python_texts(source):
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _lexed_texts(source, lexer):
    for match in lexer.finditer(source):
        if match.lastgroup is not None:
            yield source.count("\n", 0, match.start()) + 1, match[match.lastgroup]


def texts(path):
    """``(line, text)`` of each comment, docstring and message; without the code in it.

    A string of one word is a name (a key, an option), not a message.
    """
    source = path.read_text()
    if path.suffix == ".py":
        found = _python_texts(source)
    else:
        found = _lexed_texts(source, CPP_TEXT if path.suffix in CPP else CYTHON_TEXT)
    for line, text in found:
        if " " in text.strip():
            yield line, CODE.sub(lambda code: " " + "\n" * code[0].count("\n"), text)
