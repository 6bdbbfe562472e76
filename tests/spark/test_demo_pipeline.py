"""The demo's path from the archive to tables, with Spark."""

import pytest

from tapewire import archive
from tapewire.demo import computing, pipeline
from tapewire.demo.audit import Disagreement
from tapewire.demo.computing import FEATURES
from tapewire.demo.pipeline import Computed, finish
from tests.unit.demo.small_bus import play

pytestmark = pytest.mark.timeout(300)  # three jobs, the first of which includes Spark's start


@pytest.fixture(scope="module")
def session(spark, module_tmp):
    places, _ = play(module_tmp / "bus")
    archive.tap(places.root, places.archive).run(follow=False)
    done = Computed()
    with pytest.MonkeyPatch.context() as patch:
        for module in (computing, pipeline):  # it is over in some tenths of a second
            patch.setattr(module, "SAMPLE", "1ms")
        computing.run_jobs(spark, places, done.jobs.append)
        yield places, done


def test_features_by_spark_are_those_of_the_live_queue(session, tmp):
    places, done = session
    finish(places, tmp / "out", done)
    assert done.rows > 20
    assert [job["job"] for job in done.jobs] == ["refine", "features", "quality"]
    assert len(done.checks) == 1 + len(FEATURES)
    for name in ("features.html", "quality.html"):
        assert (tmp / "out" / name).read_text().startswith("<!doctype html>")


def test_other_features_than_the_live_queues_are_a_disagreement(session, tmp, monkeypatch):
    """The output of the jobs exists, but the live queue differs."""
    real = pipeline.replay.features
    monkeypatch.setattr(
        pipeline.replay, "features", lambda log, names, sample: real(log, names, "2ms")
    )
    with pytest.raises(Disagreement, match="times of a replay"):
        finish(session[0], tmp / "out", Computed())
    assert not (tmp / "out").exists()
