"""The same capture in another packing, and jobs of earlier releases."""

import gzip
import json
import zipfile

import pytest

from tapewire import ingest
from tapewire.errors import InvalidOption
from tests.support.captures import content_of, futures_lines

FORMAT = "binance-usdm"
TEXT = b"\n".join(futures_lines(200, bad_every=0)) + b"\n"


def write(path, how, text=TEXT):
    if how == "gz":
        path.write_bytes(gzip.compress(text))
    elif how == "members":
        half = len(text) // 2
        path.write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    elif how == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x", text)
    else:
        path.write_bytes(text)
    return path


@pytest.mark.parametrize(
    ("first", "second"), [("gz", "plain"), ("plain", "zip"), ("zip", "gz"), ("gz", "members")]
)
def test_a_capture_in_another_packing_is_not_imported_again(tmp, first, second):
    ingest.run(FORMAT, [write(tmp / "a", first)], tmp / "archive")
    before = content_of(tmp / "archive")
    with pytest.raises(InvalidOption, match="the records of this file are already in the log"):
        ingest.run(FORMAT, [write(tmp / "b", second)], tmp / "archive")
    after = content_of(tmp / "archive")
    assert {name: after[name] for name in before} == before


def test_a_capture_in_two_packings_is_refused(tmp):
    files = [write(tmp / "a", "gz"), write(tmp / "b", "plain")]
    with pytest.raises(InvalidOption, match="two files have the same content"):
        ingest.run(FORMAT, files, tmp / "archive")


def test_headers_without_rows_may_be_the_same_in_many_files(tmp):
    header = b"exchange,symbol,timestamp,local_timestamp,id,side,price,amount\n"
    for name in ("a", "b"):
        rows = header + b"x,%s,1700000000000000,1700000000000000,7,buy,1,2\n" % name.encode()
        files = [write(tmp / f"{name}.gz", "gz", rows)]
        empty = tmp / f"{name}-empty.gz"
        empty.write_bytes(gzip.compress(header, mtime=ord(name)))
        summary = ingest.run("tardis", [*files, empty], tmp / "archive")
        assert summary.clean


def job_file(archive):
    (path,) = archive.glob("imports/*.json")
    return path


def as_version_1(path, **changes):
    """The file as an earlier release wrote it."""
    document = json.loads(path.read_text()) | {"version": 1} | changes
    del document["contents"]
    path.write_text(json.dumps(document))


def test_an_unfinished_job_of_an_earlier_release_is_resumed(tmp):
    ingest.run(FORMAT, [write(tmp / "a", "gz")], tmp / "archive")
    before = content_of(tmp / "archive")
    as_version_1(job_file(tmp / "archive"), state="running", summary={})
    summary = ingest.run(FORMAT, [tmp / "a"], tmp / "archive")
    assert summary.resumed
    assert content_of(tmp / "archive") == before
    assert json.loads(job_file(tmp / "archive").read_text())["version"] == 2


def test_a_finished_job_of_an_earlier_release_is_compared_by_its_files(tmp):
    ingest.run(FORMAT, [write(tmp / "a", "gz")], tmp / "archive")
    as_version_1(job_file(tmp / "archive"))
    assert ingest.run(FORMAT, [tmp / "a"], tmp / "archive").already
    (tmp / "b").write_bytes((tmp / "a").read_bytes())
    with pytest.raises(InvalidOption, match="already in the log"):
        ingest.run(FORMAT, [tmp / "b"], tmp / "archive")
