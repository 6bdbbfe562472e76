"""The demo's path from the archive to tables, with Spark."""

import pytest

from tapewire import archive
from tapewire.demo import pipeline, spark_jobs
from tapewire.demo.audit import Disagreement
from tapewire.demo.pipeline import Computed, finish
from tapewire.demo.spark_jobs import FEATURES
from tests.unit.demo.small_bus import play

pytestmark = pytest.mark.timeout(300)  # three jobs, the first including Spark's start


@pytest.fixture(scope="module")
def session(spark, module_tmp):
    paths, _ = play(module_tmp / "bus")
    archive.tap(paths.root, paths.archive).run(follow=False)
    done = Computed()
    with pytest.MonkeyPatch.context() as patch:
        for module in (spark_jobs, pipeline):  # the session takes some tenths of a second
            patch.setattr(module, "SAMPLE", "1ms")
        spark_jobs.run_jobs(spark, paths, done.jobs.append)
        yield paths, done


def test_features_by_spark_are_those_of_the_live_queue(session, tmp):
    paths, done = session
    finish(paths, tmp / "out", done)
    assert done.rows > 20
    assert [job["job"] for job in done.jobs] == ["refine", "features", "quality"]
    assert len(done.checks) == 1 + len(FEATURES)
    for name in ("features.html", "quality.html"):
        assert (tmp / "out" / name).read_text().startswith("<!doctype html>")


def test_other_features_than_the_live_queues_are_a_disagreement(session, tmp, monkeypatch):
    """The jobs have results, but the live queue gives other features."""
    real = pipeline.replay.features
    monkeypatch.setattr(
        pipeline.replay, "features", lambda log, names, sample: real(log, names, "2ms")
    )
    with pytest.raises(Disagreement, match="times of a replay"):
        finish(session[0], tmp / "out", Computed())
    assert not (tmp / "out").exists()
