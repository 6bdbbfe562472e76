"""The demo's way from the archive to tables, by Spark."""

import pytest

from tapewire import archive
from tapewire.demo.audit import Disagreement
from tapewire.demo.pipeline import compute_with
from tests.unit.demo.small_bus import play


@pytest.fixture(scope="module")
def places(module_tmp):
    places, _ = play(module_tmp / "bus")
    archive.tap(places.root, places.archive).run(follow=False)
    return places


def test_features_by_spark_are_those_of_the_live_queue(spark, places, tmp):
    said = []
    done = compute_with(spark, places, tmp / "out", said.append)
    assert done.rows > 3
    assert [job["job"] for job in done.jobs] == ["refine", "features", "quality"]
    assert len(done.checks) == 5
    assert len(said) == 3
    for name in done.pages.values():
        assert (tmp / "out" / name).read_text().startswith("<!doctype html>")


def test_other_features_than_the_live_queues_are_a_disagreement(spark, places, tmp, monkeypatch):
    """The jobs have run: what they made is there, and the live queue tells another story."""
    from tapewire.demo import pipeline

    real = pipeline.replay.features
    monkeypatch.setattr(
        pipeline.replay, "features", lambda *arguments, **options: real(*arguments, sample="200ms")
    )
    with pytest.raises(Disagreement, match="times of a replay"):
        compute_with(spark, places, tmp / "out", lambda text: None)
