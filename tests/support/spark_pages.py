"""Pages of the reference about Spark: run their code in one session, read their tables."""

import re

from tests.unit.test_docs import blocks_of, run_examples


def run_page(page, tmp):
    """Run the code of a page in order, in `tmp`, the current directory."""
    (tmp / "bus").mkdir()
    namespace = {"__name__": "__main__"}
    for language, _, line, text in blocks_of(page):
        # Spark's workers have another current directory, so relative paths differ there.
        code = text.replace('"bus/', f'"{tmp}/bus/')
        if language == "pycon":
            run_examples(code, namespace, page, line)
        elif language == "python":
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


def options_of(page, *, until):
    """The names in backquotes in the first column of the section "Options"."""
    table = page.read_text().partition("## Options")[2].partition(f"## {until}")[0]
    cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    return re.findall(r"`(\w+)`", cells)
