import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

import tapewire as tw
from tapewire.scan import gaps
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import relabel
from tapewire.spark.reading.schemas import (
    RECORDS,
    TRADES,
    arrow_schema,
    from_arrow,
    match_schema,
    select,
    struct_type,
)

VIEWS = {"records": RECORDS, "trades": TRADES, "gaps": from_arrow(gaps.SCHEMA)}


def test_a_record_has_these_columns_and_no_nulls():
    assert struct_type(RECORDS).simpleString() == (
        "struct<seq:bigint,timestamp_ns:bigint,timestamp:timestamp,type_id:int,flags:int,"
        "payload:binary,queue:string>"
    )
    assert not any(field.nullable for field in struct_type(RECORDS))


@pytest.mark.parametrize("view", VIEWS)
def test_the_arrow_schema_is_the_one_that_spark_derives(view):
    asked = to_arrow_schema(struct_type(VIEWS[view]), timezone="UTC")
    made = arrow_schema(VIEWS[view])
    assert made.equals(asked)
    assert [field.nullable for field in made] == [column.nullable for column in VIEWS[view]]


def test_only_a_side_of_a_trade_may_be_null():
    assert [column.name for column in TRADES if column.nullable] == ["side"]


def test_columns_have_the_requested_order():
    assert [column.name for column in select(RECORDS, ["payload", "seq"])] == ["payload", "seq"]


def test_the_error_for_an_unknown_column_lists_the_columns():
    match = "no such column: column=price; available: seq, timestamp"
    with pytest.raises(tw.InvalidOption, match=match):
        select(RECORDS, ["seq", "price"])


def test_a_schema_may_allow_nulls_in_a_column_that_has_none():
    asked = sql.StructType([sql.StructField("seq", sql.LongType(), nullable=True)])
    expected = schemas.ViewColumn("seq", sql.LongType(), nullable=True)
    assert match_schema(RECORDS, asked) == (expected,)


def test_a_schema_must_not_forbid_nulls_in_a_column_that_may_have_them():
    asked = sql.StructType([sql.StructField("side", sql.StringType(), nullable=False)])
    with pytest.raises(tw.InvalidOption, match="not null that may be null: column=side"):
        match_schema(TRADES, asked)


def test_the_error_for_another_type_gives_the_expected_type():
    asked = sql.StructType([sql.StructField("seq", sql.IntegerType())])
    with pytest.raises(tw.InvalidOption, match=r"column=seq, type=int; use bigint"):
        match_schema(RECORDS, asked)


def test_a_schema_may_allow_nulls_in_a_list_that_has_none():
    """DDL text cannot express a list without nulls."""
    known = [schemas.ViewColumn("sizes", sql.ArrayType(sql.LongType(), containsNull=False))]
    loose = sql.StructType([sql.StructField("sizes", sql.ArrayType(sql.LongType()))])
    (column,) = match_schema(known, loose)
    made = pa.array([[1, 2], []], pa.list_(pa.field("element", pa.int64(), nullable=False)))
    batch = relabel(pa.record_batch([made], names=["sizes"]), schemas.arrow_schema([column]))
    assert batch.schema == schemas.arrow_schema([column])
    assert batch["sizes"].to_pylist() == [[1, 2], []]


def test_a_schema_must_not_forbid_nulls_in_a_list_that_may_have_them():
    known = [schemas.ViewColumn("sizes", sql.ArrayType(sql.LongType()))]
    strict = sql.StructType([sql.StructField("sizes", sql.ArrayType(sql.LongType(), False))])
    with pytest.raises(tw.InvalidOption, match="another type: column=sizes"):
        match_schema(known, strict)
