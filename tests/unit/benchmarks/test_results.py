"""Output made from results: percentiles, bars, tables, losses, and the published page."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import markdown
from benchmarks.alternative_plots import spread
from benchmarks.compare import measure, tables
from benchmarks.harness import percentiles
from tools import readme_numbers

ROOT = Path(__file__).resolve().parents[3]


def alternative(name, p50=None, rate=None, *, waits="spins", batched=False, **fields):
    """A result whose percentiles are 1, 2, 3 … times its p50."""
    result = {
        "name": name,
        "title": name.title(),
        "what": "",
        "waits": waits,
        "batched": batched,
        "missing": None,
    }
    if p50 is not None:
        found = {key: p50 * (i + 1) for i, key in enumerate(tables.SHOWN)} | {"count": 9}
        result["one_way"] = {"percentiles": found, "gap_ns": 1000}
    if rate is not None:
        result["throughput"] = {"records_per_s": rate, "messages": 7, "how": "so"}
    return result | fields


def run_of(*alternatives, rows=()):
    return {"alternatives": list(alternatives), "rows": list(rows)}


def test_percentiles_are_those_of_the_samples_to_three_digits():
    found = percentiles(np.arange(1, 100_001))
    for p in (50, 90, 99, 99.9, 99.99):
        assert found[f"p{p:g}"] == pytest.approx(p * 1000, rel=1e-3)
    assert found["max"] == 100_000
    assert found["count"] == 100_000


def test_a_bar_holds_tapewire_against_the_faster_form_of_the_alternative():
    rows = measure.bars(
        [
            alternative("tapewire", 1000),
            alternative("pyzmq", 50_000),
            alternative("pyzmq-spinning", 25_000),
        ]
    )
    assert [(row.value, row.against_value, row.bar, row.verdict) for row in rows] == [
        (1.0, 25.0, ("≤", 0.05), "pass")
    ]


def test_a_bar_needs_both_sides_in_the_same_run():
    assert (
        measure.bars([alternative("tapewire", 1000), alternative("iceoryx2", missing="no")]) == []
    )
    assert measure.bars([alternative("iceoryx2", 1000)]) == []


def test_of_two_rounds_the_lower_median_and_the_higher_throughput_are_kept():
    first, second = alternative("it", 9, 10), alternative("it", 7, 8)
    for one in (first, second):
        one["one_way"]["p50_of_each_run"] = [one["one_way"]["percentiles"]["p50"]]
        one["throughput"]["of_each_run"] = [one["throughput"]["records_per_s"]]
    for kept in (measure.better(first, second), measure.better(second, first)):
        assert kept["one_way"]["percentiles"]["p50"] == 7
        assert sorted(kept["one_way"]["p50_of_each_run"]) == [7, 9]
        assert kept["throughput"]["records_per_s"] == 10
        assert sorted(kept["throughput"]["of_each_run"]) == [8, 10]


def test_an_alternative_that_fails_in_any_round_has_failed():
    good, broken = alternative("it", 9, 10), alternative("it", failed="it hung")
    assert measure.better(good, broken) == broken
    assert measure.better(broken, good) == broken


def test_tables_have_the_best_first_and_leave_out_what_was_not_measured():
    alternatives = [
        alternative("slow", 9, 10),
        alternative("none", missing="no"),
        alternative("quick", 3, 20),
    ]
    assert [line[0] for line in tables.latency_lines(alternatives)[1:]] == ["Quick", "Slow"]
    assert [line[0] for line in tables.throughput_lines(alternatives)[1:]] == ["Quick", "Slow"]


def test_what_was_not_measured_is_listed_with_its_reason():
    alternatives = [
        alternative("absent", missing="not installed"),
        alternative("broken", failed="it hung"),
    ]
    assert tables.absent(alternatives) == [("Absent", "not installed"), ("Broken", "it hung")]
    assert "- **Absent**: not installed" in markdown.absent({"alternatives": alternatives})


def test_each_percentile_in_which_an_alternative_is_better_is_a_loss():
    quick = alternative("quick", 100)
    quick["one_way"]["percentiles"]["max"] = 10_000
    assert tables.slower(run_of(alternative("tapewire", 200), quick))[1:] == [
        (
            "Tapewire",
            "Quick",
            "100 ns (2 ×)",
            "200 ns (2 ×)",
            "300 ns (2 ×)",
            "400 ns (2 ×)",
            "500 ns (2 ×)",
            "",
        )
    ]


def test_a_higher_throughput_is_a_loss():
    run = run_of(
        alternative("tapewire", rate=1e6),
        alternative("quick", rate=2e6),
        alternative("slow", rate=9e5),
    )
    assert tables.fewer(run)[1:] == [("Tapewire", "Quick", "2.00 M/s (2 ×)")]


def test_losses_compare_sleepers_with_sleepers_and_batches_with_batches():
    ours = (
        alternative("tapewire", 1, 100),
        alternative("tapewire-parked", 500, waits="sleeps"),
        alternative("tapewire-batch", rate=1000, batched=True),
    )
    spinner = alternative("spinner", 10, 90)  # quicker than our sleeper: no wonder
    sleeper = alternative(
        "sleeper", 600, 500, waits="sleeps", batched=True
    )  # more than our single calls
    run = run_of(*ours, spinner, sleeper)
    assert (tables.slower(run)[1:], tables.fewer(run)[1:]) == ([], [])
    run = run_of(*ours, spinner, alternative("sleeper", 400, 2000, waits="sleeps", batched=True))
    assert [line[:2] for line in tables.slower(run)[1:]] == [("Tapewire-Parked", "Sleeper")]
    assert [line[:2] for line in tables.fewer(run)[1:]] == [("Tapewire-Batch", "Sleeper")]


def test_an_even_figure_is_no_loss():
    run = run_of(alternative("tapewire", 5, 5), alternative("other", 5, 5))
    assert (tables.slower(run)[1:], tables.fewer(run)[1:]) == ([], [])


def test_the_section_on_losses_names_missed_bars_or_states_that_there_are_none():
    row = {
        "family": "next",
        "what": "next()",
        "value": 60.0,
        "unit": "ns",
        "against": "call",
        "against_value": 20.0,
        "ratio": 3.0,
        "bar": ["≤", 2.5],
        "verdict": "miss",
    }
    text = markdown.losses(run_of(alternative("tapewire", 5), rows=[row]))
    assert "no alternative was better" in text
    assert "no alternative was better" not in markdown.losses(
        run_of(alternative("tapewire", 5), alternative("quick", 4))
    )
    assert "- next: next(): 3 ×, the bar is ≤ 2.5 ×" in text
    text = markdown.losses(run_of(alternative("tapewire", 5), rows=[row | {"verdict": "pass"}]))
    assert "No bar was missed." in text


def test_a_page_made_on_a_busy_machine_has_a_note():
    assert "a load of 1.5 on 2 CPUs" in markdown.busy({"load_at_start": 1.5, "cpus": 2})
    assert markdown.busy({"load_at_start": 0.3, "cpus": 2}) == ""


def test_names_of_lines_are_moved_apart_and_keep_their_order():
    assert spread([0.9, 0.1, 0.5], 0.1) == [0.9, 0.1, 0.5]
    moved = spread([0.5, 0.52, 0.51, 0.9], 0.1)
    assert moved[3] == 0.9
    assert sorted(moved) == [moved[0], moved[2], moved[1], moved[3]]
    assert np.diff(sorted(moved)).min() >= 0.1 - 1e-9
    assert np.mean(moved[:3]) == pytest.approx(0.51)


@pytest.mark.parametrize("places", [[0.99, 0.97, 0.98], [0.0, 0.02, 0.01], [0.7, 0.99, 0.98]])
def test_names_of_lines_stay_within_the_picture(places):
    moved = spread(places, 0.2)
    assert np.argsort(moved).tolist() == np.argsort(places).tolist()
    assert min(moved) >= 0
    assert max(moved) <= 1
    assert np.diff(sorted(moved)).min() >= 0.2 - 1e-9


def test_the_published_page_is_what_the_published_results_give():
    results = json.loads(readme_numbers.PUBLISHED.read_text())
    assert (ROOT / "docs/benchmarks.md").read_text() == readme_numbers.page(results)


def test_the_figures_of_the_readme_are_those_of_the_published_results():
    results = json.loads(readme_numbers.PUBLISHED.read_text())
    text = (ROOT / "README.md").read_text()
    assert text == readme_numbers.readme(text, results)


def test_published_results_are_of_a_whole_and_full_run():
    results = json.loads(readme_numbers.PUBLISHED.read_text())
    assert results["smoke"] is False
    assert {"append", "next", "one_way"} <= {row["family"] for row in results["rows"]}
