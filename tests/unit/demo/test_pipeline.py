"""The archive equals the live queue, and the computed features equal those of a replay."""

import shutil
import sys

import numpy as np
import pyarrow as pa
import pytest

import tapewire as tw
from tapewire import archive, replay
from tapewire.demo import pipeline
from tapewire.demo.audit import Disagreement
from tapewire.demo.measure import measure
from tapewire.demo.pipeline import Computed, archived, why_no_spark
from tapewire.demo.report import page
from tapewire.demo.run import audit_session
from tapewire.demo.spark_jobs import FEATURES
from tapewire.demo.summary import headlines, summary
from tests.unit.demo.small_bus import play


@pytest.fixture(scope="module")
def session(module_tmp):
    paths, history = play(module_tmp / "bus")
    archive.tap(paths.root, paths.archive).run(follow=False)
    return paths, history


@pytest.fixture
def found(session, monkeypatch):
    """What Spark would have computed; the session takes some tenths of a second."""
    monkeypatch.setattr(pipeline, "SAMPLE", "1ms")
    table = replay.features(session[0].raw, list(FEATURES), sample="1ms")
    return table.append_column("venue", pa.array(["demo"] * len(table)))


def test_the_archive_equals_the_live_queue(session):
    kept = archived(session[0])
    assert kept.records == tw.queue.status(session[0].raw).last_seq + 1
    assert kept.to_dict()["logs"][0]["log"].startswith("raw/v1/demo/")
    assert len(kept.checks) == 1


def test_a_record_that_was_not_archived_is_a_disagreement(session, tmp):
    paths, _ = session
    copy = type(paths)(tmp / "bus")
    shutil.copytree(paths.root, copy.root)
    with tw.open_publisher(copy.raw) as writer:
        writer.append(0x2001, b"one more")
    with pytest.raises(Disagreement, match="every record of the market data"):
        archived(copy)


def test_a_damaged_archive_is_a_disagreement(session, tmp):
    paths, _ = session
    copy = type(paths)(tmp / "bus")
    shutil.copytree(paths.root, copy.root)
    (log,) = archive.ls(copy.archive)
    segment = copy.archive / log.log / "000000000.q"
    data = bytearray(segment.read_bytes())
    data[64 + 64] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Disagreement, match="damaged"):
        archived(copy)


def test_features_of_a_replay_agree(session, found):
    done = Computed()
    pipeline._compare(session[0], found, done)
    assert done.rows == len(found) > 20
    assert len(done.checks) == 1 + len(FEATURES)
    assert done.times[0] == 0


@pytest.mark.parametrize("name", FEATURES)
def test_one_bit_of_one_feature_is_a_disagreement(session, found, name):
    values = found[name].to_pylist()
    at = next(i for i, value in enumerate(values) if value is not None)
    values[at] = float(np.nextafter(values[at], np.inf))
    column = found.schema.get_field_index(name)
    with pytest.raises(Disagreement, match=name):
        pipeline._compare(session[0], found.set_column(column, name, pa.array(values)), Computed())


def test_a_missing_row_is_a_disagreement(session, found):
    with pytest.raises(Disagreement, match="times of a replay"):
        pipeline._compare(session[0], found.slice(1), Computed())


def test_a_missing_extra_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "tapewire.spark", None)
    assert "tapewire.spark" in why_no_spark()


def test_a_missing_java_is_reported(monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "JDK" in why_no_spark()


def test_the_page_shows_the_archive_and_what_was_computed(session, found):
    paths, history = session
    done = Computed(start_seconds=6.5, pages={"features": "features.html"})
    pipeline._compare(paths, found, done)
    done.jobs.append({"job": "refine", "rows": 1234, "seconds": 2.0, "findings": []})
    measures = measure(paths, history)
    kept = archived(paths)
    result = summary(history, audit_session(paths.root, history), measures, kept, done)
    shown = page(result, measures, done)
    assert f"{kept.records:,} records" in shown
    assert kept.logs[0].log in shown
    assert '<a href="features.html">features</a>' in shown
    assert "<td>617</td>" in shown
    assert "Spread and imbalance of TAPE" in shown
    assert "bit for bit" in " ".join(headlines(result))
    without = page(summary(history, audit_session(paths.root, history), measures, kept), measures)
    assert "What Spark computed" not in without
