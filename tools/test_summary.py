"""Summarize a test run: the missing tools, then, as the last line, how many tests passed.

Usage: python tools/test_summary.py RESULTS, the directory of the JUnit files and missing-tools.txt.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def count(report: Path) -> Counter[str]:
    """Add up the suites of a JUnit file; pytest and ctest write the same attributes."""
    total: Counter[str] = Counter()
    for suite in ElementTree.parse(report).iter("testsuite"):
        bad = sum(int(suite.get(key, 0)) for key in ("failures", "errors"))
        skipped = sum(int(suite.get(key, 0)) for key in ("skipped", "disabled"))
        total += Counter(passed=int(suite.get("tests", 0)) - bad - skipped)
        total += Counter(failed=bad, skipped=skipped)
    return total


def main(results: Path) -> int:
    print()
    total: Counter[str] = Counter()
    for report in sorted(results.glob("*.xml")):
        counts = count(report)
        total += counts
        print(f"{report.stem}: {counts['passed']} passed, {counts['skipped']} skipped")
    missing = (results / "missing-tools.txt").read_text().splitlines()
    print("not tested, because missing:", "; ".join(missing) if missing else "nothing")
    print(f"{total['passed']} passed, {total['failed']} failed")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
