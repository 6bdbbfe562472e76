"""Write the results of the last `make bench` to README.md and docs/: figures, machine, plots."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # as a script, only its own directory is on the path

from benchmarks import markdown  # noqa: E402

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PUBLISHED = ROOT / "docs/assets/benchmarks.json"
PLOTS = ("bars.png", "books.png", "alternatives-latency.png", "alternatives-throughput.png")


def readme(text: str, results: dict[str, Any]) -> str:
    """The text of README.md with the figures of these results between its two marks."""
    plot = (
        "![One-way latency by percentile, with alternatives](docs/assets/alternatives-latency.png)"
    )
    more = (
        "Throughput, methods, and where Tapewire loses: [docs/benchmarks.md](docs/benchmarks.md)."
    )
    parts = (markdown.bars(results), plot, more)
    head, rest = text.split(BEGIN)
    lead = f"{markdown.where(results)}.\n\n{markdown.busy(results)}"
    return f"{head}{BEGIN}\n{lead}" + "\n\n".join(parts) + f"\n{END}{rest.split(END)[1]}"


def page(results: dict[str, Any]) -> str:
    """The text of docs/benchmarks.md."""
    return markdown.documentation(results, (ROOT / "benchmarks/page.md").read_text())


def main() -> None:
    results = json.loads((ROOT / "benchmarks/results.json").read_text())
    if results["smoke"]:
        raise SystemExit("results.json has smoke figures: run `make bench`")
    results = markdown.published(results)
    PUBLISHED.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(), results))
    (ROOT / "docs/benchmarks.md").write_text(page(results))
    for name in PLOTS:
        shutil.copy(ROOT / "benchmarks/plots" / name, ROOT / "docs/assets" / name)


if __name__ == "__main__":
    main()
