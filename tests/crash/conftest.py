"""Fixtures of the crash tests."""

import pytest

from tests.crash.crew import Crew


@pytest.fixture(scope="session")
def _server():
    crew = Crew()
    yield crew
    crew.close()


@pytest.fixture
def crew(_server):
    """`crew.start("actors.writer", ...)`: processes to communicate with and to kill."""
    yield _server
    _server.dismiss()
