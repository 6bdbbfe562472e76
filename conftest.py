"""Fixtures of all tests: a fast scratch directory, and waiting without fixed sleeps."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

# Options for a quick start of Java, unless the user has set their own.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "tests/support/spark"))


def pytest_collection_modifyitems(config, items):
    """Order test files by their longest time limit, so that no long file runs alone at the end.

    The tests of a file stay together, because they share fixtures that are slow to start. A long
    test has a time limit of its own, by which files are ordered.
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
    # In a container it is often 64 MiB, which is too small.
    if shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30:
        return shm
    return Path(tempfile.gettempdir())


def _scratch():
    path = Path(tempfile.mkdtemp(prefix="tapewire-test-", dir=_scratch_root()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tmp():
    """An empty directory, in memory if possible: tests sync often, and a disk is slow."""
    yield from _scratch()


@pytest.fixture(scope="module")
def module_tmp():
    """The same for the tests of a module."""
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
    """No Spark is running in this process before and after the test."""
    _end_spark()
    yield
    _end_spark()


@pytest.fixture
def own_messages():
    """Unregister the messages that the test has defined."""
    from tapewire import log
    from tapewire.protocol import registry

    tables = (registry._messages, log._decoders)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def wait_until(predicate, timeout=10.0):
    """Wait until `predicate()` is true and return its value; fail after `timeout` seconds."""
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
    """`eventually(predicate, timeout=10)` waits for another thread or process."""
    return wait_until
