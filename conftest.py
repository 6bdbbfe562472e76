"""What all tests share: a fast scratch folder, and patience without sleeping."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

# Java that starts fast, for each Spark that a test starts; a user's own setting stays.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "tests/support/spark"))


def pytest_collection_modifyitems(config, items):
    """The longest first, so that no core is left alone with one at the end of a run.

    A file as a whole: its tests share what is dear to start. What takes long has a time limit of
    its own, and is how files are told apart.
    """
    usual = float(config.getini("timeout"))
    only_long = config.option.markexpr == "long"

    def limit(item):
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark else usual

    longest = {}
    for item in items:
        if (item.get_closest_marker("long") is not None) == only_long:
            longest[item.path] = max(longest.get(item.path, 0), limit(item))
    items.sort(key=lambda item: -longest.get(item.path, 0))


def _scratch_root():
    shm = Path("/dev/shm")
    # A container's is often 64 MiB: too small.
    if shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30:
        return shm
    return Path(tempfile.gettempdir())


def _scratch():
    path = Path(tempfile.mkdtemp(prefix="tapewire-test-", dir=_scratch_root()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tmp():
    """An empty folder, in memory where there is one: tests sync often, and a disk is slow."""
    yield from _scratch()


@pytest.fixture(scope="module")
def module_tmp():
    """The same, for what several tests of a module share."""
    yield from _scratch()


@pytest.fixture(autouse=True)
def _doctest_scratch(request):
    """Doctests use `tmp` without asking for it."""
    if type(request.node).__name__ == "DoctestItem":
        request.getfixturevalue("doctest_namespace")["tmp"] = request.getfixturevalue("tmp")


def _end_spark():
    import sys

    if "tapewire.spark.sessions.session" in sys.modules:
        sys.modules["tapewire.spark.sessions.session"]._end(None)


@pytest.fixture
def no_spark():
    """No Spark is under way in this process: not before the test, and not after it."""
    _end_spark()
    yield
    _end_spark()


@pytest.fixture
def own_messages():
    """Messages that the test defines are forgotten when it ends."""
    from tapewire import log
    from tapewire.protocol import registry

    tables = (registry._messages, log._decoders)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def wait_until(predicate, timeout=10.0):
    """Until `predicate()` is true; what it returned. Fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() > deadline:
            pytest.fail(f"condition not met within {timeout} s")
        time.sleep(0.001)


@pytest.fixture
def eventually():
    """`eventually(predicate, timeout=10)`: for what another thread or process must do first."""
    return wait_until
