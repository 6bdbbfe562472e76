import pytest

from tests.support.statuses import MadeUpBus


@pytest.fixture
def bus(tmp):
    """A bus without files; see tests/support/statuses.py."""
    return MadeUpBus(tmp)
