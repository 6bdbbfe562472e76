"""Pages, comments and messages are in plain English, in lines that fit beside each other."""

import re

from tests.tidy.texts import ROOT, lines_outside_code, prose, tracked_files

# What to write instead is in docs/glossary.md and in CONTRIBUTING.md.
ODD = (
    "anew",
    "folders?",
    "for ever",
    "goes on",
    "in earnest",
    "kept aside",
    "mend(?:ed|ing|s)?",
    "nobody",
    "nothing (?:is )?there",
    "rivals?",
    "says so",
    "somebody",
    "stands? aside",
    "to be believed",
    "to heed",
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


WIDTH = 100
# Made from results, by tools/readme_numbers.py and by a benchmark.
GENERATED = {"benchmarks/RESULTS.md", "docs/benchmarks.md"}


def is_too_long(line):
    """Longer than WIDTH, with a space to break it at, and no address in it."""
    return len(line) > WIDTH and "://" not in line and len(line.split()) > 1


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
