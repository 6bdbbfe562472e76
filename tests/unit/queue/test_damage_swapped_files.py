"""Swapped files, anything but plain files, and files of later versions."""

import itertools
import random

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.damaged_files import (
    ACTIVE,
    CONTROL,
    FILES,
    HINTS,
    READER,
    SEALED,
    Original,
    by_log,
    by_name,
    by_writer,
    damaged_in,
    drain,
    outcome,
    run_all,
    survey,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return Original(tmp_path_factory.mktemp("original") / "q")


# ---- swapped ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FILES, 2)))
def test_two_swapped_files_are_refused_or_repaired(original, tmp, one, other):
    directory = original.write(tmp / "q")
    (directory / one).write_bytes(original.files[other])
    (directory / other).write_bytes(original.files[one])
    both_hints = one in HINTS and other in HINTS
    survey(original, directory, lenient_resume=READER in (one, other), must_open=both_hints)


@pytest.mark.parametrize("name", FILES)
def test_random_bytes_are_refused_or_repaired(original, tmp, name):
    chance = random.Random(name)
    sizes = (len(original.files[name]), 1, 80, 512, 8192)
    cases = ((f"{n} random bytes", chance.randbytes(n)) for n in sizes)
    run_all(original, tmp, name, cases, must_open=name in HINTS)


# ---- not a file ---------------------------------------------------------------------------------


def replace_by_directory(path):
    path.mkdir()


def replace_by_link_to_a_copy(path):
    path.symlink_to(path.parent / "kept")


def replace_by_link_to_nothing(path):
    path.symlink_to("missing")


def replace_by_link_to_itself(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    "replace",
    [
        replace_by_directory,
        replace_by_link_to_a_copy,
        replace_by_link_to_nothing,
        replace_by_link_to_itself,
    ],
)
@pytest.mark.parametrize("name", FILES)
def test_anything_but_a_plain_file_is_refused_or_not_needed(original, tmp, name, replace):
    directory = original.write(tmp / "q")
    path = directory / name
    path.rename(path.parent / "kept")
    replace(path)
    survey(original, directory, lenient_resume=True)
    if path.is_symlink():
        assert (path.parent / "kept").read_bytes() == original.files[name]
        assert not (directory / "missing").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_or_created_again(original, tmp, name):
    directory = original.write(tmp / "q")
    (directory / name).unlink()
    if name == SEALED:
        # As after retention: only the records of the other segments exist.
        with tw.open_log(directory) as reader:
            records = drain(reader)
        assert records == original.records[-len(records) :]
        return
    if name == READER:
        assert by_name(directory) == original.records  # a new name starts at the earliest
        return
    found = survey(original, directory, must_open=name in HINTS, wiped=name == ACTIVE)
    if name == ACTIVE:
        assert isinstance(found[0], tw.SegmentMissing)


# ---- later versions -----------------------------------------------------------------------------


def assert_from_the_future(found, path, field):
    for error in found:
        assert isinstance(error, tw.UnsupportedVersion), repr(error)
        assert error.path == str(path)
        assert error.offset is not None
        assert field in str(error)
        assert "upgrade" in error.hint.lower()


@pytest.mark.parametrize("version", [0, 2, 5, 2**32 - 1])
def test_a_control_file_of_another_version_is_refused(original, tmp, version):
    data = bytearray(original.files[CONTROL])
    qf.poke(data, "ControlBlock", version=version)
    qf.poke(data, "ControlBlock", check=qf.control_check(bytes(data)))
    found = damaged_in(original, tmp, CONTROL, data)
    assert_from_the_future(found, tmp / "q" / CONTROL, f"version={version}")


@pytest.mark.parametrize("version", [1, 2, 4, 2**32 - 1])
def test_a_segment_of_another_version_is_refused(original, tmp, version):
    key = qf.unpack("SegmentHeader", original.files[ACTIVE])["key"]
    data = qf.segment_header(2, version=version, key=key) + original.files[ACTIVE][64:]
    log, _, writer = damaged_in(original, tmp, ACTIVE, data)
    assert_from_the_future([log, writer], tmp / "q" / ACTIVE, f"version={version}")


@pytest.mark.parametrize("version", [2, 255])
def test_a_record_of_a_later_version_is_refused_and_not_changed(original, tmp, version):
    directory = original.write(tmp / "q")
    path = directory / ACTIVE
    _, records = qf.parse_segment(path)
    data = bytearray(path.read_bytes())
    for r in records[2:]:  # a later release continued in this segment
        data[r.offset : r.end] = qf.record(
            r.seq,
            r.payload,
            timestamp_ns=r.timestamp_ns,
            type_id=r.type_id,
            version=version,
            state=qf.state_at(qf.key_of(directory), 2, r.offset),
        )
    path.write_bytes(data)
    found = [outcome(how, directory) for how in (by_log, by_name, by_writer)]
    assert path.read_bytes() == data
    for error in found:
        assert isinstance(error, tw.UnsupportedVersion), repr(error)
        assert (error.path, error.offset) == (str(path), records[2].offset)
        assert f"version={version}" in str(error)
