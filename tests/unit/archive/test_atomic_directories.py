"""Directories that appear complete, in one step."""

import os

import pytest

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.errors import ConcurrentUse, InvalidName


def made(directories, text):
    directory = directories.new()
    path = directory.__enter__()
    (path / "file").write_text(text)
    return directory, path


def test_a_directory_replaces_another_in_one_step(tmp_path, monkeypatch):
    directories = AtomicDirectories(tmp_path, "compact")
    place = tmp_path / "a" / "b"
    with directories.new() as path:
        (path / "file").write_text("old")
        (path / "gone").write_text("old")
        directories.publish(path, place)
    removed = []
    monkeypatch.setattr("shutil.rmtree", lambda path, **_: removed.append(sorted(os.listdir(path))))
    with directories.new() as path:
        (path / "file").write_text("new")
        directories.publish(path, place)
    assert sorted(os.listdir(place)) == ["file"]
    assert (place / "file").read_text() == "new"
    assert removed[0] == ["file", "gone"]  # the old one, complete, after the new one was in place


def test_a_directory_that_is_not_published_is_removed(tmp_path):
    directories = AtomicDirectories(tmp_path, "compact")
    with directories.new() as path:
        (path / "file").write_text("half")
    assert not path.exists()


def test_the_next_run_removes_what_a_killed_one_left(tmp_path):
    directories = AtomicDirectories(tmp_path, "compact")
    _directory, path = made(directories, "half")
    with AtomicDirectories(tmp_path, "compact").exclusive():
        assert not path.exists()


def test_one_run_at_a_time(tmp_path):
    with (
        AtomicDirectories(tmp_path, "compact").exclusive(),
        pytest.raises(ConcurrentUse),
        AtomicDirectories(tmp_path, "compact").exclusive(),
    ):
        pass
    with (
        AtomicDirectories(tmp_path, "compact").exclusive(),
        AtomicDirectories(tmp_path, "refine").exclusive(),
    ):
        pass


def test_a_path_outside_the_target_is_refused(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "target" / "link").symlink_to(tmp_path / "out")
    directories = AtomicDirectories(tmp_path / "target", "compact")
    for place in (tmp_path / "target" / "link" / "x", tmp_path / "target" / ".." / "out" / "x"):
        with directories.new() as path, pytest.raises(InvalidName):
            directories.publish(path, place)


def test_directories_are_private(tmp_path):
    directories = AtomicDirectories(tmp_path / "t", "compact")
    with directories.new() as path:
        directories.publish(path, tmp_path / "t" / "a" / "b")
    for directory in ("t", "t/a", "t/a/b", "t/_tapewire", "t/_tapewire/compact"):
        assert (tmp_path / directory).stat().st_mode & 0o777 == 0o700
