"""Pages, comments and messages are in plain English, in lines that fit beside each other."""

import re

from tests.tidy.texts import CPP, CYTHON, ROOT, lines_outside_code, prose, texts, tracked_files

# What to write instead is in docs/glossary.md and in CONTRIBUTING.md.
ODD = (
    "anew",
    "folders?",
    "for ever",
    "goes on",
    "heed(?:ed|ing|s)?",
    "in earnest",
    "kept aside",
    "mend(?:ed|ing|s)?",
    "nobody",
    "nothing (?:is )?there",
    "rivals?",
    "says so",
    "somebody",
    "stands? aside",
    "tells?",
    "to be believed",
    "told",
)
GAP = r"[\s#/*]+"  # between two words, which may be on two lines of a comment
ODD_WORDS = re.compile(rf"\b(?:{'|'.join(ODD).replace(' ', GAP)})\b", re.IGNORECASE)


def test_pages_are_in_plain_english():
    found = [
        f"{page.relative_to(ROOT)}:{number}: {word[0]}"
        for page in tracked_files()
        if page.suffix == ".md"
        for number, line in prose(page)
        if (word := ODD_WORDS.search(line))
    ]
    assert found == []


# Where texts are checked besides the pages.
CHECKED = ("benchmarks/", "conftest.py", "examples/", "native/", "src/", "tools/")
CHECKED += tuple(
    f"tests/{kind}/"
    for kind in ("crash", "fuzz", "golden", "model", "property", "spark", "stress", "support")
)

WIDTH = 100
PRAGMA = re.compile(r" +(?:#|//) *(?:noqa|type: ignore|NOLINT).*$")
# Made from results, by tools/readme_numbers.py and by a benchmark.
GENERATED = {"benchmarks/RESULTS.md", "docs/benchmarks.md"}


def test_comments_docstrings_and_messages_are_in_plain_english():
    found = [
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, word.start())}: {word[0]}"
        for path in tracked_files()
        if path.suffix in {".py", *CYTHON, *CPP} and str(path.relative_to(ROOT)).startswith(CHECKED)
        for line, text in texts(path)
        for word in ODD_WORDS.finditer(text)
    ]
    assert found == []


def is_too_long(line):
    """Longer than WIDTH, with a space to break it at, and no address in it."""
    return len(line) > WIDTH and "://" not in line and len(line.split()) > 1


def test_lines_of_code_fit_in_100_columns():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)}"
        for path in tracked_files()
        if path.suffix in {".py", ".pyi", *CYTHON, *CPP}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if is_too_long(PRAGMA.sub("", line))
    ]
    assert found == []


def test_lines_of_prose_fit_in_100_columns():
    """Tables, images and links cannot be broken."""
    found = []
    for page in tracked_files():
        name = str(page.relative_to(ROOT))
        if page.suffix != ".md" or name in GENERATED:
            continue
        made = False
        for number, line in lines_outside_code(page):
            made = line == "<!-- bench:begin -->" or (made and line != "<!-- bench:end -->")
            breakable = not made and "](" not in line and not line.lstrip().startswith("|")
            if breakable and is_too_long(line):
                found.append(f"{name}:{number}: {len(line)}")
    assert found == []
