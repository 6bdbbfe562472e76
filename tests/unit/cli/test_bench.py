"""`tapewire bench`: what it measures, advises and judges; no assertion on speed."""

import dataclasses
import json

import pytest

from tapewire.bench.host import Host, advice, filesystem_of
from tapewire.bench.measure import percentiles
from tapewire.cli.bench import compared, judge
from tests.support.commands import tapewire

KEYS = {
    "append_loop",
    "append",
    "append_batch",
    "next",
    "read_batch",
    "roll",
    "one_way_spinning",
    "one_way_sleeping",
    "flush_sync",
}


@pytest.fixture(scope="module")
def saved(module_tmp):
    """The saved file and the result of a short run."""
    ran = tapewire(
        "bench", "--seconds", 0.1, "--dir", module_tmp, "--save", module_tmp / "b.json", "--json"
    )
    assert ran.code == 0, ran.err
    return module_tmp / "b.json", ran.json[0]


def test_everything_is_measured_with_its_baseline(saved):
    _, result = saved
    assert set(result["measured"]) == KEYS
    for key, one in result["measured"].items():
        if one["note"] is None:
            assert one["samples"] > 0, key
            assert one["p50"] > 0, key
            assert key == "roll" or one["yardstick_value"] > 0, key


def test_percentiles_rise(saved):
    for one in saved[1]["measured"].values():
        if "max" in one:
            values = [one[p] for p in ("p50", "p99", "p99.9", "p99.99", "max") if p in one]
            assert values == sorted(values)


def test_the_result_is_saved_and_nothing_else_is_left(saved):
    path, result = saved
    assert json.loads(path.read_text()) == result
    assert [entry.name for entry in path.parent.iterdir()] == ["b.json"]


def test_the_text_shows_values_advice_and_verdict_within_80_columns(saved):
    from tapewire.cli.bench import _lines

    lines = list(_lines({**saved[1], "compared": compared(saved[1], saved[1])}))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("an empty native call", "p99.99", "verdict: ", "compared", "1.00 ×"):
        assert word in text


def test_changes_since_a_saved_result(saved):
    path, result = saved
    before = json.loads(path.read_text())
    before["measured"]["append"]["p50"] = result["measured"]["append"]["p50"] / 2
    del before["measured"]["roll"]
    rows = compared(before, result)
    (append,) = [r for r in rows if (r["key"], r["which"]) == ("append", "p50")]
    assert append["ratio"] == 2.0
    assert "roll" not in {row["key"] for row in rows}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "tapewire-bench", "version": 2}'])
def test_a_file_that_is_not_a_result_is_refused(tmp, text):
    (tmp / "b.json").write_text(text)
    ran = tapewire("bench", "--compare", tmp / "b.json")
    assert ran.code == 2
    assert "not a result" in ran.err


@pytest.mark.parametrize("option", ["--dir", "--compare"])
def test_a_missing_path_is_reported(tmp, option):
    ran = tapewire("bench", option, tmp / "nowhere")
    assert ran.code == 4
    assert "nowhere" in ran.err


def test_a_percentile_needs_values_beyond_it():
    assert set(percentiles(range(10_000))) == {"p50", "p99", "p99.9", "p99.99", "max"}
    assert set(percentiles(range(9_999))) == {"p50", "p99", "p99.9", "max"}
    assert set(percentiles([5, 6])) == {"p50", "max"}


BEST = Host(
    machine="x86_64",
    cpu="any",
    cpus=16,
    virtual=False,
    kernel="6.12",
    python="3.13",
    tapewire="0.1.0",
    filesystem="tmpfs",
    governors=("performance",),
    clocksource="tsc",
    thp="madvise",
    thp_shmem="never",
    isolated="2-7",
    nohz_full="2-7",
    smt=False,
    swap_bytes=0,
    swappiness=60,
    memlock_bytes=None,
    overcommit=0,
    dirty_background_ratio=10,
    dirty_background_bytes=0,
    dirty_writeback_centisecs=500,
    load=0.1,
)


def test_a_well_configured_host_gets_no_advice():
    assert [one.what for one in advice(BEST) if one.wanting] == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"cpus": 1}, "cores"),
        ({"cpus": 2}, "cores"),
        ({"virtual": True}, "machine"),
        ({"load": 9.0}, "load"),
        ({"governors": ("performance", "powersave")}, "governor"),
        ({"clocksource": "hpet"}, "clock"),
        ({"isolated": ""}, "isolation"),
        ({"nohz_full": ""}, "isolation"),
        ({"smt": True}, "SMT"),
        ({"thp": "always"}, "huge pages"),
        ({"swap_bytes": 1 << 30}, "swap"),
        ({"memlock_bytes": 8 << 20}, "memlock"),
        ({"overcommit": 2}, "overcommit"),
    ],
)
def test_an_unsuitable_setting_is_reported_with_a_remedy(change, what):
    (found,) = [one for one in advice(dataclasses.replace(BEST, **change)) if one.wanting]
    assert found.what == what
    assert found.why
    assert found.do


def test_a_disk_is_reported_with_its_write_back():
    on_disk = dataclasses.replace(BEST, filesystem="ext4")
    assert [one.what for one in advice(on_disk) if one.wanting] == ["directory", "write-back"]
    steady = dataclasses.replace(on_disk, dirty_background_bytes=64 << 20)
    assert [one.what for one in advice(steady) if one.wanting] == ["directory"]


def test_the_filesystem_is_that_of_the_innermost_mount(tmp):
    inner = tmp / "a b"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    table = f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:2 / {escaped} rw shared:1 - xfs y rw\nnonsense"
    assert filesystem_of(inner / "q", table) == "xfs"
    assert filesystem_of(tmp / "a", table) == "ext4"
    assert filesystem_of(tmp, "") == "unknown"


def measured(**changes):
    values = {
        "append": {"what": "append", "unit": "ns", "p50": 120, "p99.99": 900},
        "one_way_spinning": {"what": "spinning", "unit": "ns", "p50": 400, "p99.9": 2_000},
        "one_way_sleeping": {"what": "sleeping", "unit": "µs", "p50": 8, "p99.9": 40},
    }
    for key, change in changes.items():
        values[key] = values[key] | change
    return values


def test_a_quick_host_is_good_for_microsecond_work():
    assert judge(measured()).to_dict() == {
        "level": "good",
        "text": "good for microsecond work",
        "reasons": [],
    }


def test_bad_tails_are_reported_with_their_value():
    verdict = judge(measured(one_way_sleeping={"p99.9": 1_500}), disturbed=["load: 9"])
    assert verdict.level == "tails"
    assert verdict.reasons == ("sleeping: p99.9 is 1.5 ms, more than 1 ms", "load: 9")


def test_bad_medians_come_first():
    verdict = judge(measured(append={"p50": 5_000, "p99.99": 90_000}))
    assert verdict.level == "poor"
    assert [reason.split(" is ")[0] for reason in verdict.reasons] == [
        "append: p50",
        "append: p99.99",
    ]


def test_time_taken_by_the_hypervisor_is_a_reason():
    assert "hypervisor" in judge(measured(), stolen_seconds=0.5).reasons[0]
