"""The page about the sink: its code runs, and it has every option."""

from tapewire.spark.sink.options import _NAMES
from tests.support.spark_pages import options_of, run_page
from tests.unit.test_docs import DOCS

PAGE = DOCS / "reference" / "spark-sink.md"


def test_the_code_of_the_page_runs_in_order(spark, tmp, monkeypatch):
    monkeypatch.chdir(tmp)
    run_page(PAGE, tmp)


def test_the_page_lists_every_option():
    assert {name.lower() for name in options_of(PAGE, until="Modes")} == set(_NAMES) - {"path"}
