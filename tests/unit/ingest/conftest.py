"""Fixtures of the tests of importers."""

import json

import pytest

from tapewire import ingest
from tests.support.captures import content_of


@pytest.fixture
def import_lines(tmp):
    """`import_lines(format, lines, **options)` returns the summary and the archive's content."""

    def run(format, lines, **options):
        capture = tmp / "capture"
        capture.write_bytes(b"".join(line + b"\n" for line in lines))
        summary = ingest.run(format, [capture], tmp / "archive", **options)
        return summary, content_of(tmp / "archive") if summary.records else {}

    return run


@pytest.fixture
def rejected(tmp):
    """`rejected()` returns the rows in rejected.jsonl."""

    def rows():
        (path,) = tmp.glob("archive/imports/*/rejected.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    return rows
