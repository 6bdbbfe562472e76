"""Parquet files of a log that are invalid are refused, and links next to them are not followed."""

import os

import pytest

from tapewire.errors import CorruptSource
from tapewire.scan.parquet_files import parquet_files
from tapewire.scan.parquet_logs import parquet_to_log
from tests.support.parquet_rows import write_rows


@pytest.mark.parametrize("column", ["seq", "payload", "flags"])
def test_a_null_is_an_error_of_the_file(tmp, column):
    directory = write_rows(tmp / "rows", **{column: [None, None]})
    with pytest.raises(CorruptSource, match=column) as caught:
        parquet_to_log(parquet_files(directory), tmp / "log")
    assert caught.value.path == str(directory / "part-00000.parquet")


def test_a_link_next_to_the_rows_is_neither_followed_nor_copied(tmp):
    directory = write_rows(tmp / "rows")
    victim = tmp / "victim"
    victim.write_text("{}")
    victim.chmod(0o644)
    (directory / "_types.json").symlink_to(victim)
    with pytest.raises(CorruptSource, match="a symbolic link"):
        parquet_to_log(parquet_files(directory), tmp / "log")
    assert victim.stat().st_mode & 0o777 == 0o644
    assert not os.path.lexists(tmp / "log" / "types.json")


def test_a_fifo_next_to_the_rows_does_not_block(tmp):
    directory = write_rows(tmp / "rows")
    os.mkfifo(directory / "_types.json")
    with pytest.raises(CorruptSource, match="regular file"):
        parquet_to_log(parquet_files(directory), tmp / "log")
