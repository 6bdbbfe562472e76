"""The documentation is true: its code runs, and its tables are complete."""

import doctest
import gc
import os
import re
import textwrap
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import bus, errors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([^"]+)"')

PAGES = [
    ROOT / "README.md",  # its commands run too, in tests/spark/test_readme.py
    DOCS / "index.md",
    *sorted((DOCS / "tutorial").glob("*.md")),
    *sorted((DOCS / "howto").glob("*.md")),
    *sorted((DOCS / "formats").glob("*.md")),
]


def blocks_of(page):
    """(language, title or None, line, code) of each fenced block, in order."""
    text = page.read_text()
    for match in FENCE.finditer(text):
        title = TITLE.search(match["info"])
        line = text.count("\n", 0, match.start("body"))
        yield match["language"], title and title[1], line, textwrap.dedent(match["body"])


def run_examples(code, namespace, page, line):
    """A block of `>>>` lines: what is shown must be what comes out."""
    test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    results = runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)  # a doctest runs in a copy
    assert results.failed == 0, "".join(report)


@pytest.fixture
def process_as_before():
    """A page may tune the process; restore it for the other tests, also after a failure."""
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("process_as_before", "own_messages", "no_spark")
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_in_order(page, tmp, monkeypatch):
    monkeypatch.chdir(tmp)
    namespace = {"__name__": "__main__"}
    for language, title, line, code in blocks_of(page):
        if title is not None:
            Path(title).write_text(code)  # a file that later blocks of the page use
        elif language == "pycon":
            run_examples(code, namespace, page, line)
        elif language == "python":
            # The line numbers of a failure are those of the page.
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


def test_every_page_of_the_tutorial_and_the_howtos_shows_code():
    for page in PAGES:
        assert any(language in ("python", "pycon") for language, *_ in blocks_of(page)), page


def test_python_blocks_are_not_hidden_by_another_language():
    """`>>>` in a `python` block would run nothing of what it shows."""
    for page in PAGES:
        for language, _, line, code in blocks_of(page):
            assert not (language == "python" and code.startswith(">>>")), (
                f"{page}:{line}: use pycon"
            )


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_of_root_pages_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for target in (a or b for a, b in targets):
        if "://" not in target:
            assert (ROOT / target).exists(), f"{page} links to {target}"


def first_column(page):
    """The names in backquotes that begin the rows of a page's tables, in order."""
    return re.findall(r"^\| *`([^`]+)`", (DOCS / page).read_text(), re.MULTILINE)


def test_the_metrics_page_lists_every_counter_in_order(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        assert first_column("reference/metrics.md") == list(writer.metrics())


def test_the_errors_page_lists_every_error():
    assert sorted(first_column("reference/errors.md")) == sorted(
        [*errors.__all__, "UnknownMessage"]
    )


def test_the_caps_page_lists_every_capability(tmp):
    with (
        tw.open_publisher(tmp / "q", segment_bytes=8192),
        tw.open_subscriber(tmp / "q", "name") as named,
        bus.FanInReader({"q": tw.open_log(tmp / "q")}) as fan,
    ):
        assert set(first_column("reference/caps.md")) == named.caps | fan.caps


def test_the_options_page_lists_every_option_of_a_writer_in_order():
    options = first_column("reference/options.md")
    assert options[: len(tw.WriterConfig.__dataclass_fields__)] == list(
        tw.WriterConfig.__dataclass_fields__
    )


@pytest.mark.parametrize("page", ["crash", "durability"])
def test_the_tests_that_a_page_names_exist(page):
    text = (DOCS / "tutorial" / f"{page}.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 5
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
