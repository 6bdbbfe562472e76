"""Books and features through Spark: the rows of `tapewire.replay`, for any slices."""

import pytest

from tapewire import replay
from tapewire import spark as tws
from tests.support.archive_tapes import write_archive
from tests.support.faulty_days import Day
from tests.support.replayed import Query, assert_same_rows

NAMES = "mid,imbalance3,ofi,vwap_300ms,trade_flow_1s"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    root = tmp_path_factory.mktemp("replayed")
    write_archive(root, 41, 900)
    return root


@pytest.fixture(scope="module")
def source(spark):
    tws.register(spark)
    return spark


def load(source, path, **options):
    reader = source.read.format("tapewire")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


@pytest.mark.parametrize("partitions", [1, 16])
@pytest.mark.parametrize(
    "options",
    [
        {"view": "book", "levels": 4},
        {"view": "book", "levels": 4, "sample": "100ms", "flat": "true", "prices": "decimal"},
        {"view": "features", "features": NAMES},
        {"view": "features", "features": NAMES, "sample": "100ms"},
    ],
    ids=["book", "flat book on a grid", "features", "features on a grid"],
)
def test_rows_are_those_of_one_pass(source, archive, options, partitions):
    table = load(source, archive, **options, partitions=partitions).toArrow()
    asked = Query(archive, **options)
    assert table.num_rows > 100
    assert table.select(asked.options.columns).equals(asked.read(asked.parts()))
    assert_same_rows(table, asked.one_pass())


def test_a_day_is_cut_into_tasks(source, archive):
    frame = load(source, archive, view="book", partitions=6)
    assert frame.rdd.getNumPartitions() > 3


def test_levels_are_arrays_that_sql_can_take_apart(source, archive):
    load(source, archive, view="book", levels=2).createOrReplaceTempView("books")
    best = source.sql(
        "SELECT bid_prices[0] AS bid FROM books WHERE trusted AND size(bid_prices) > 0"
    ).toArrow()
    want = Query(archive, "book", levels=2).one_pass()
    rows = [row["bid_prices"] for row in want.to_pylist() if row["trusted"] and row["bid_prices"]]
    assert best["bid"].to_pylist() == [prices[0] for prices in rows]


def test_the_schema_is_the_documented_one(source, archive):
    book = load(source, archive, view="book", levels=2)
    assert book.schema.simpleString() == (
        "struct<timestamp_ns:bigint,timestamp:timestamp,seq:bigint,venue:string,symbol:string,"
        "trusted:boolean,price_scale:int,size_scale:int,bid_prices:array<bigint>,"
        "bid_sizes:array<bigint>,ask_prices:array<bigint>,ask_sizes:array<bigint>>"
    )
    assert [field.name for field in book.schema if field.nullable] == ["seq"]
    features = load(source, archive, view="features", features=NAMES)
    assert [field.name for field in features.schema if field.nullable] == NAMES.split(",")


def test_every_existing_feature_can_be_read(source, archive):
    frame = load(source, archive, view="features", sample="1s")
    assert len(frame.columns) == 4 + len(replay.describe_features())
    assert frame.count() > 10


def test_a_schema_of_ddl_text_chooses_lists(source, archive):
    reader = source.read.format("tapewire").option("view", "book").option("levels", "2")
    chosen = reader.schema("ask_sizes array<bigint>, timestamp_ns bigint").load(str(archive))
    whole = load(source, archive, view="book", levels=2).select("ask_sizes", "timestamp_ns")
    assert chosen.collect() == whole.collect()


def test_venue_gaps_of_an_archive_without_ledgers_are_rows(source, tmp):
    day = Day(tmp / "a")
    day.snapshot()
    day.diffs(3)
    day.lose(2)
    day.diffs(1)
    day.close()
    (gap,) = load(source, tmp / "a", view="gaps").collect()
    assert (gap.kind, gap.symbol, gap.first, gap.last) == ("venue", "BTCUSDT", 104, 105)
