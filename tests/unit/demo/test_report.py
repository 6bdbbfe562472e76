"""Measures, summary and page of a session."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from tapewire import archive
from tapewire.demo.measure import Hop, measure
from tapewire.demo.pipeline import archived
from tapewire.demo.report import page, write_page
from tapewire.demo.run import Restart, audit_session
from tapewire.demo.summary import show, summary
from tapewire.text import duration
from tests.unit.demo.small_bus import play


@pytest.fixture(scope="module")
def session(module_tmp):
    paths, history = play(module_tmp / "bus")
    books, measures = audit_session(paths.root, history), measure(paths, history)
    archive.tap(paths.root, paths.archive).run(follow=False)
    return paths, history, measures, summary(history, books, measures, archived(paths))


def test_every_order_is_a_sample_of_each_hop_on_its_path(session):
    _, _, measures, result = session
    orders = sum(own["orders"] for own in result["strategies"].values())
    samples = {hop.name: len(hop.ns) for hop in measures.hops}
    assert samples["WAL → market data → strategy"] == orders
    assert samples["strategy → router"] == orders
    assert samples["router → exchange"] == orders
    assert samples["exchange, WAL → fill"] == result["fills"]
    assert samples["exchange → router → strategy"] == result["fills"]
    assert 0 < samples["tick to fill, in total"] < result["fills"]


def test_no_hop_takes_negative_time_and_the_total_is_more_than_a_part(session):
    _, _, measures, _ = session
    assert all(hop.ns.min() >= 0 for hop in measures.hops)
    total, part = measures.hops[-1], measures.hops[0]
    assert np.median(total.ns) > np.median(part.ns)


def test_samples_that_a_kill_delayed_are_counted_separately(session):
    paths, history, before, _ = session
    middle = (history.began_ns + history.closed_ns) // 2
    cut = type(history)(history.options, history.began_ns, history.closed_ns, history.events)
    cut.restarts = [Restart("router", middle, middle, history.closed_ns, {})]
    hops = measure(paths, cut).hops
    for hop, undisturbed in zip(hops, before.hops, strict=True):
        assert len(hop.interrupted) > 0
        assert len(hop.ns) + len(hop.interrupted) == len(undisturbed.ns)


def test_a_killed_snapshotter_delays_no_order(session):
    paths, history, before, _ = session
    cut = type(history)(history.options, history.began_ns, history.closed_ns, history.events)
    cut.restarts = [
        Restart("snapshotter", history.began_ns, history.began_ns, history.closed_ns, {})
    ]
    assert [len(hop.ns) for hop in measure(paths, cut).hops] == [len(h.ns) for h in before.hops]


def test_the_late_joiner_replays_less_than_a_replay_from_the_start(session):
    *_, result = session
    joiner = result["joiner"]
    assert 0 < joiner["replayed"] < joiner["from_start"]["records"]
    assert joiner["from_start"]["records"] == joiner["snapshot"] + 1 + joiner["replayed"]


def test_the_summary_is_json(session):
    *_, result = session
    assert json.loads(json.dumps(result)) == result
    assert result["agrees"] is True


def test_a_hop_without_samples_has_no_percentiles():
    hop = Hop("none", np.empty(0, "i8"), np.empty(0, "i8"))
    assert [duration(p) for p in hop.percentiles()] == ["–"] * 3


def test_the_terminal_shows_every_hop_queue_and_recovery_within_80_columns(session):
    *_, result = session
    out = io.StringIO()
    show(Console(file=out, width=80, color_system=None), result)
    text = out.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for row in [*result["hops"], *result["queues"]]:
        assert row["name"] in text
    for recovery in result["recoveries"]:
        assert re.search(rf"^{recovery['victim']} ", text, re.MULTILINE)


def test_the_page_is_one_file_that_fetches_nothing(session, tmp):
    _, _, measures, result = session
    text = write_page(tmp / "out", result, measures).read_text(encoding="utf-8")
    assert text.count("<svg") == 4
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(src|href)=|url\((?!#)|@import|https?:", text)


def test_the_page_replaces_that_of_an_earlier_run(session, tmp):
    _, _, measures, result = session
    (tmp / "index.html").write_text("old")
    assert write_page(tmp, result, measures).read_text(encoding="utf-8").startswith("<!doctype")


def test_no_value_in_a_plot_is_nan(session):
    _, _, measures, result = session
    assert "nan" not in page(result, measures)


def test_an_exchange_that_was_killed_before_its_first_checkpoint_is_shown(session):
    paths, history, measures, _ = session
    early = type(history)(history.options, history.began_ns, history.closed_ns, history.events)
    facts = {"checkpoint": None, "replayed": 5, "published": 0, "seconds": 0.1}
    early.restarts = [Restart("exchange", 0, 1, 2, facts)]
    [recovery] = summary(early, audit_session(paths.root, history), measures, archived(paths))[
        "recoveries"
    ]
    assert recovery["found"].startswith("no checkpoint yet, 5 inputs replayed")
