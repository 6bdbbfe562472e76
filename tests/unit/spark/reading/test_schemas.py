import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

import tapewire as tw
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import relabel
from tapewire.spark.reading.schemas import (
    GAPS,
    RECORDS,
    TRADES,
    arrow_schema,
    select,
    struct_type,
    take,
)

VIEWS = {"records": RECORDS, "trades": TRADES, "gaps": GAPS}


def test_a_record_has_these_columns_and_no_nulls():
    assert struct_type(RECORDS).simpleString() == (
        "struct<seq:bigint,timestamp_ns:bigint,timestamp:timestamp,type_id:int,flags:int,"
        "payload:binary,queue:string>"
    )
    assert not any(field.nullable for field in struct_type(RECORDS))


@pytest.mark.parametrize("view", VIEWS)
def test_arrow_has_what_spark_makes_of_it_to_the_letter(view):
    asked = to_arrow_schema(struct_type(VIEWS[view]), timezone="UTC")
    made = arrow_schema(VIEWS[view])
    assert made.equals(asked)
    assert [field.nullable for field in made] == [column.nullable for column in VIEWS[view]]


def test_only_a_side_of_a_trade_may_be_null():
    assert [column.name for column in TRADES if column.nullable] == ["side"]


def test_columns_come_in_the_order_asked_for():
    assert [column.name for column in select(RECORDS, ["payload", "seq"])] == ["payload", "seq"]


def test_an_unknown_column_is_told_with_those_there_are():
    with pytest.raises(tw.InvalidOption, match="no such column: price; there are: seq, timestamp"):
        select(RECORDS, ["seq", "price"])


def test_a_schema_may_be_looser_about_nulls():
    asked = sql.StructType([sql.StructField("seq", sql.LongType(), nullable=True)])
    assert take(RECORDS, asked) == (schemas.ViewColumn("seq", sql.LongType(), nullable=True),)


def test_a_schema_may_not_forbid_nulls_that_come():
    asked = sql.StructType([sql.StructField("side", sql.StringType(), nullable=False)])
    with pytest.raises(tw.InvalidOption, match="not null what may be null: column=side"):
        take(TRADES, asked)


def test_a_schema_of_another_type_is_refused_with_the_right_one():
    asked = sql.StructType([sql.StructField("seq", sql.IntegerType())])
    with pytest.raises(tw.InvalidOption, match=r"column=seq, type=int; it is bigint"):
        take(RECORDS, asked)


def test_a_list_without_nulls_may_be_called_one_with_nulls():
    """As DDL text does, which has no words for lists without."""
    known = [schemas.ViewColumn("sizes", sql.ArrayType(sql.LongType(), containsNull=False))]
    loose = sql.StructType([sql.StructField("sizes", sql.ArrayType(sql.LongType()))])
    (column,) = schemas.take(known, loose)
    made = pa.array([[1, 2], []], pa.list_(pa.field("element", pa.int64(), nullable=False)))
    batch = relabel(pa.record_batch([made], names=["sizes"]), schemas.arrow_schema([column]))
    assert batch.schema == schemas.arrow_schema([column])
    assert batch["sizes"].to_pylist() == [[1, 2], []]


def test_a_list_with_nulls_may_not_be_called_one_without():
    known = [schemas.ViewColumn("sizes", sql.ArrayType(sql.LongType()))]
    strict = sql.StructType([sql.StructField("sizes", sql.ArrayType(sql.LongType(), False))])
    with pytest.raises(tw.InvalidOption, match="another type: column=sizes"):
        schemas.take(known, strict)
