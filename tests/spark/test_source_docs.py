"""The page about the source: its code runs, and it has every option."""

import re

from tapewire.spark.reading.options import _PARSERS
from tests.unit.test_docs import DOCS, blocks_of, run_examples

PAGE = DOCS / "reference" / "spark-source.md"
# Of other views, and of streaming: on pages of their own.
ELSEWHERE = {"levels", "sample", "features", "on_gap", "flat", "reader", "state"}
ELSEWHERE |= {"max_rows", "max_bytes", "max_skew"}


def test_the_code_of_the_page_runs_in_order(spark, tmp, monkeypatch, own_messages):
    monkeypatch.chdir(tmp)
    (tmp / "bus").mkdir()
    namespace = {"__name__": "__main__"}
    for language, _, line, text in blocks_of(PAGE):
        # Spark's workers began elsewhere, and take relative paths from there.
        code = text.replace('"bus/', f'"{tmp}/bus/')
        if language == "pycon":
            run_examples(code, namespace, PAGE, line)
        elif language == "python":
            exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)


def test_the_page_lists_every_option():
    table = PAGE.read_text().partition("## Options")[2].partition("## Views")[0]
    cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(\w+)`", cells)) == set(_PARSERS) - ELSEWHERE
