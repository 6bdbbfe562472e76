import pytest

import tapewire as tw

SEGMENT = 8192


@pytest.fixture
def queue(tmp):
    """The path of the queue, which may not exist yet."""
    return tmp / "q"


@pytest.fixture
def publisher(queue):
    """`publisher(**options)`: a writer with 8 KiB segments, closed when the test ends."""
    opened = []

    def open_writer(**options):
        writer = tw.open_publisher(queue, **{"segment_bytes": SEGMENT, **options})
        opened.append(writer)
        return writer

    yield open_writer
    for writer in opened:
        writer.close()


@pytest.fixture
def subscriber(queue):
    """`subscriber(name, **options)`: a named reader, closed when the test ends."""
    opened = []

    def open_reader(name="r", **options):
        reader = tw.open_subscriber(queue, name, **options)
        opened.append(reader)
        return reader

    yield open_reader
    for reader in opened:
        reader.close()
