"""Marks of completed parts."""

import json

import pytest

from tapewire.archive.job_marks import JobMarks
from tapewire.errors import CorruptMetadata, InvalidName

INPUTS = [{"path": "raw", "last_seq": 7}]


def test_a_part_is_current_only_with_its_inputs_and_options(tmp_path):
    done = JobMarks(tmp_path, "refine")
    done.write("v/s/2024-01-01", INPUTS, {"late": "keep"}, {"rows": 3})

    assert done.current("v/s/2024-01-01", INPUTS, {"late": "keep"}).result == {"rows": 3}
    assert done.current("v/s/2024-01-01", INPUTS, {"late": "drop"}) is None
    assert (
        done.current("v/s/2024-01-01", [{"path": "raw", "last_seq": 8}], {"late": "keep"}) is None
    )
    assert done.current("v/s/2024-01-02", INPUTS, {"late": "keep"}) is None


def test_marks_are_private_and_belong_to_one_job(tmp_path):
    JobMarks(tmp_path, "refine").write("v/s", INPUTS, {}, {})

    path = tmp_path / "_tapewire" / "done" / "refine" / "v" / "s.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "_tapewire").stat().st_mode & 0o777 == 0o700
    assert JobMarks(tmp_path, "bars").read("v/s") is None


def test_a_forgotten_part_is_not_done(tmp_path):
    done = JobMarks(tmp_path, "refine")
    done.write("v/s", INPUTS, {}, {})
    done.forget("v/s")
    done.forget("never/there")
    assert done.read("v/s") is None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"format": "tapewire-done"}', b'{"format": "other"}', b"\xff\xfe"],
)
def test_a_damaged_mark_raises_when_read_and_is_otherwise_ignored(tmp_path, text):
    done = JobMarks(tmp_path, "refine")
    done.write("v/s", INPUTS, {}, {})
    done.path("v/s").write_bytes(text)
    with pytest.raises(CorruptMetadata, match=r"s\.json"):
        done.read("v/s")
    assert done.current("v/s", INPUTS, {}) is None


def test_the_mark_of_another_part_is_an_error(tmp_path):
    done = JobMarks(tmp_path, "refine")
    done.write("v/s", INPUTS, {}, {})
    document = json.loads(done.path("v/s").read_text())
    document["part"] = "v/t"
    done.path("v/s").write_text(json.dumps(document))
    with pytest.raises(CorruptMetadata, match="another part"):
        done.read("v/s")


@pytest.mark.parametrize("part", ["../x", "a/../b", "/etc", "a//b", "", ".hidden"])
def test_names_of_parts_stay_below_the_target(tmp_path, part):
    with pytest.raises(InvalidName):
        JobMarks(tmp_path, "refine").write(part, INPUTS, {}, {})


def test_a_link_out_of_the_target_is_not_followed(tmp_path):
    (tmp_path / "target" / "_tapewire").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "target" / "_tapewire" / "done").symlink_to(tmp_path / "out")
    with pytest.raises(InvalidName, match="link"):
        JobMarks(tmp_path / "target", "refine").write("v/s", INPUTS, {}, {})
