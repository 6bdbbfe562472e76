"""Columns of the view `book`, converted from rows of the replay."""

import pytest

from tapewire.replay import BookStream
from tapewire.scan.options import ReadOptions
from tests.support.archive_tapes import write_archive

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tapewire.spark.views import book


@pytest.fixture(scope="module")
def rows(module_tmp):
    """A batch of rows of one book."""
    write_archive(module_tmp, 31, 200)
    logs = sorted(path.parent for path in module_tmp.rglob("book/control.meta"))[:1]
    with BookStream(logs, levels=3, snapshots=False) as stream:
        (batch,) = stream
    return batch


@pytest.mark.parametrize(
    ("prices", "names"),
    [
        ("scaled", ("seq", "bid_prices", "ask_sizes", "timestamp")),
        ("decimal", ("bid_prices", "ask_prices", "trusted")),
        ("decimal", ("bid_price_1", "ask_price_3", "ask_size_2")),
    ],
    ids=["lists", "decimals", "flat"],
)
@pytest.mark.parametrize(("start", "count"), [(0, 30), (7, 30), (50, 1000), (20, 0)])
def test_the_rows_of_a_slice_are_a_slice_of_the_rows(rows, prices, names, start, count):
    options = ReadOptions(view="book", levels=3, prices=prices, columns=names)
    expected = book.shape(rows, options, 4).slice(start, count)
    found = book.shape(rows.slice(start, count), options, 4)
    found.validate(full=True)
    assert found.to_pylist() == expected.to_pylist()
