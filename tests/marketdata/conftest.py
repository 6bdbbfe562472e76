"""Imports of real captures, each done once for all tests that read it."""

import shutil

import pytest

from tapewire import ingest
from tests.support.marketdata import capture


class Imported:
    """An archive, and the summary of the import that created it."""

    def __init__(self, archive, summary, files):
        self.archive = archive
        self.summary = summary
        self.files = files


@pytest.fixture(scope="session")
def imported(tmp_path_factory):
    """`imported("okx", "okx/OKX.ws.1.0")`: the archive of these files of the captures."""
    made = {}

    def get(format, *names):
        if (format, names) not in made:
            files = [capture(name) for name in names]
            archive = tmp_path_factory.mktemp("archive")
            made[format, names] = Imported(archive, ingest.run(format, files, archive), files)
        return made[format, names]

    yield get
    for one in made.values():
        shutil.rmtree(one.archive)
