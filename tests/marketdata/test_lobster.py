"""LOBSTER: a day of AMZN at one level; after each message the book is the row of the order book."""

import io
import zipfile

import pytest

from tapewire import ingest
from tapewire.replay import Replay
from tests.support.archives import logs_of
from tests.support.lobster_files import by_line
from tests.support.marketdata import capture, report_count

CAPTURE = "lobster/LOBSTER_SampleFile_AMZN_2012-06-21_1.zip"
MESSAGES, ORDERBOOK = (
    f"AMZN_2012-06-21_34200000_57600000_{kind}_1.csv" for kind in ("message", "orderbook")
)
VISIBLE = "1234"


def lines_of(name):
    with zipfile.ZipFile(capture(CAPTURE)) as archive, archive.open(name) as file:
        return [line.rstrip() for line in io.TextIOWrapper(file, "ascii")]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    archive = tmp_path_factory.mktemp("lobster")
    files = [f"{capture(CAPTURE)}!{name}" for name in (MESSAGES, ORDERBOOK)]
    return archive, ingest.run("lobster", files, archive)


def test_after_each_message_the_book_is_the_row_and_trusted(archive):
    to, summary = archive
    assert summary.clean
    rows = lines_of(ORDERBOOK)
    states = by_line(to, 1, len(rows), "AMZN")
    equal = [state == (True, row) for state, row in zip(states, rows, strict=True)]
    types = [line.split(",")[1] for line in lines_of(MESSAGES)]
    visible = sum(same for same, kind in zip(equal, types, strict=True) if kind in VISIBLE)
    report_count("LOBSTER AMZN, visible messages", visible, 55_070)
    report_count("LOBSTER AMZN, all rows", sum(equal), 57_515)


def test_no_state_of_the_book_is_crossed(archive):
    (log,) = logs_of(archive[0], "nasdaq", "AMZN", "book")
    states = 0
    with Replay(log) as replay:
        for step in replay:
            if step.book.trusted:
                states += 1
                assert step.book.best_bid.price < step.book.best_ask.price
    report_count("LOBSTER AMZN, states", states, 55_071)


def test_without_the_order_book_no_state_is_trusted(tmp):
    summary = ingest.run("lobster", [f"{capture(CAPTURE)}!{MESSAGES}"], tmp)
    assert not summary.clean
    assert list(summary.untrusted) == ["nasdaq/AMZN/book"]
    for stream in ("book", "book_orders"):
        (log,) = logs_of(tmp, "nasdaq", "AMZN", stream)
        with Replay(log) as replay:
            trusted = sum(step.book.trusted for step in replay if step.book is not None)
        assert trusted <= 1, "a book of orders is trusted at its reset"
