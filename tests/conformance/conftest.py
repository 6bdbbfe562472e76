import pytest


@pytest.fixture
def log(kind, tmp):
    """An empty log of the kind, open for appending."""
    with kind.create(tmp / "log") as made:
        yield made


@pytest.fixture
def read(kind, log):
    """`read(types=None)`: a new reader at the start of `log`."""
    opened = []

    def open_reader(types=None):
        reader = kind.open_reader(log.where, types)
        opened.append(reader)
        return reader

    yield open_reader
    for reader in opened:
        reader.close()
