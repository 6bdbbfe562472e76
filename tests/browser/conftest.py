"""Debian's chromium, driven by playwright, and a bus with a writer process."""

import os
import shutil

import pytest

from tests.support.processes import WRITER, Child

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def browser():
    if shutil.which(CHROMIUM) is None:
        pytest.skip("needs chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    # Chromium's sandbox does not work as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """`open_page(url, color_scheme=…, viewport=…)`; fails if the console has errors."""
    contexts = []
    errors = []

    def open_page(url, expected_errors=False, **options):
        context = browser.new_context(**{"viewport": {"width": 1500, "height": 950}} | options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        if not expected_errors:  # the browser reports a lost connection as an error
            page.on("console", lambda m: m.type in ("error", "warning") and errors.append(m.text))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def writer(tmp):
    """A writer process on `tmp/bus/md`; each line sent to it is a number of records to append."""
    with Child(WRITER, tmp / "bus" / "md", 1 << 20) as writer:
        writer.expect("ready")
        yield writer
