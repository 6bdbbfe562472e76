"""Manifests on disk: written atomically, and checked when read."""

import json
import os

import pytest

import tapewire as tw
from tapewire.archive.transaction.manifest import Action, Manifest, Manifests

ACTION = Action("v1/okx/A/2026-01-31/book", "append", "task-0-7/000001", 5, 12, keep_seq=False)
MANIFEST = Manifest("bars", "7", "job-1", 5, "00ff", (ACTION,))


@pytest.fixture
def manifests(tmp):
    return Manifests(tmp)


def decided(tmp):
    return tmp / "batches" / "bars" / "7.decided.json"


def test_a_decided_batch_is_read_as_it_was_written(manifests):
    manifests.decide(MANIFEST)
    assert manifests.find("bars", "7") == MANIFEST
    assert list(manifests.decided()) == [MANIFEST]


def test_a_published_batch_is_found_and_no_longer_decided(manifests):
    manifests.decide(MANIFEST)
    manifests.published(MANIFEST)
    assert manifests.find("bars", "7") == MANIFEST
    assert list(manifests.decided()) == []


def test_a_batch_without_a_digest_is_forgotten(manifests, tmp):
    once = Manifest("bars", "7", "job-1", 5, "", (ACTION,))
    manifests.decide(once)
    manifests.published(once)
    assert manifests.find("bars", "7") is None
    assert os.listdir(tmp / "batches" / "bars") == []


def test_a_half_written_manifest_is_ignored(manifests, tmp):
    manifests.decide(MANIFEST)
    decided(tmp).rename(tmp / "batches" / "bars" / "7.decided.json.tmp")
    assert list(manifests.decided()) == []
    manifests.decide(MANIFEST)
    assert list(manifests.decided()) == [MANIFEST]


def test_the_newest_batch_has_the_highest_number(manifests):
    for batch in ("9", "10", "daily"):
        manifests.decide(Manifest("bars", batch, "job-1", 0, "00", ()))
    assert manifests.newest("bars") == 10
    assert manifests.newest("none") is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"job": "../etc"}, "not a valid job"),
        ({"writer": ""}, "not a valid writer"),
        ({"rows": -1}, "rows must not be negative"),
        ({"rows": True}, "rows must be of type int"),
        ({"more": 1}, "an unknown member"),
        ({"format": "x"}, '"format": "tapewire-sink"'),
        ({"actions": [1]}, r"actions\[0\] must be an object"),
    ],
)
def test_an_invalid_document_is_refused_and_its_member_named(manifests, tmp, change, what):
    manifests.decide(MANIFEST)
    document = json.loads(decided(tmp).read_text())
    decided(tmp).write_text(json.dumps(document | change))
    with pytest.raises(tw.CorruptMetadata, match=what):
        list(manifests.decided())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"log": "v1/../../etc"}, r"actions\[0\].log"),
        ({"log": "/etc"}, r"actions\[0\].log"),
        ({"staged": "a//b"}, r"actions\[0\].staged"),
        ({"kind": "remove"}, "kind must be one of create, append, replace"),
        ({"next_seq": 2**64}, "next_seq must fit 64 bits"),
        ({"keep_seq": 1}, "keep_seq must be true or false"),
    ],
)
def test_an_invalid_action_is_refused_and_its_member_named(manifests, tmp, change, what):
    manifests.decide(MANIFEST)
    document = json.loads(decided(tmp).read_text())
    document["actions"][0] |= change
    decided(tmp).write_text(json.dumps(document))
    with pytest.raises(tw.CorruptMetadata, match=what):
        list(manifests.decided())


def test_a_manifest_of_a_later_release_is_refused(manifests, tmp):
    manifests.decide(MANIFEST)
    document = json.loads(decided(tmp).read_text())
    decided(tmp).write_text(json.dumps(document | {"version": 2}))
    with pytest.raises(tw.UnsupportedVersion, match="version=2, known=1"):
        list(manifests.decided())


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": 1, "a": 2}'])
def test_a_file_that_is_not_a_manifest_is_refused(manifests, tmp, text):
    manifests.decide(MANIFEST)
    decided(tmp).write_bytes(text)
    with pytest.raises(tw.CorruptMetadata, match="not valid JSON"):
        list(manifests.decided())
