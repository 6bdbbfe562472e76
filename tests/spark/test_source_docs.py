"""The page about the source: its code runs, and it has every option."""

from tapewire.scan.options import _PARSERS
from tests.support.spark_pages import options_of, run_page
from tests.unit.test_docs import DOCS

PAGE = DOCS / "reference" / "spark-source.md"
# Options of other views and of streaming, on other pages.
ELSEWHERE = {"levels", "sample", "features", "on_gap", "flat", "reader", "state"}
ELSEWHERE |= {"max_rows", "max_bytes", "max_skew"}


def test_the_code_of_the_page_runs_in_order(spark, tmp, monkeypatch, own_messages):
    monkeypatch.chdir(tmp)
    run_page(PAGE, tmp)


def test_the_page_lists_every_option():
    assert set(options_of(PAGE, until="Views")) == set(_PARSERS) - ELSEWHERE
