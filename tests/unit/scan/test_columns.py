from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import tapewire as tw
from tapewire.scan import columns


def views(*payloads):
    return pa.array(payloads, pa.binary_view())


PAYLOADS = (b"", b"short", b"x" * 12, b"y" * 13, b"z" * 1000)


def test_lengths_of_views_are_read_without_their_bytes():
    assert columns.lengths(views(*PAYLOADS)).tolist() == [0, 5, 12, 13, 1000]


def test_lengths_of_a_slice_are_its_own():
    assert columns.lengths(views(*PAYLOADS)[2:4]).tolist() == [12, 13]


@pytest.mark.parametrize("start", [0, 1])
def test_filtered_views_keep_their_bytes(start):
    part = views(*PAYLOADS)[start:]
    chosen = np.array([i % 2 == 0 for i in range(len(part))])
    assert columns.filtered(part, chosen).to_pylist() == list(PAYLOADS[start::2])


def test_a_value_fits_up_to_63_bits():
    assert columns.bigint("n", np.array([2**63 - 1], "u8"), "q").to_pylist() == [2**63 - 1]
    with pytest.raises(tw.InvalidMessage, match=f"n={2**63}, queue=q"):
        columns.bigint("n", np.array([1, 2**63], "u8"), "q")


def test_strided_values_are_accepted():
    assert columns.bigint("n", np.arange(6, dtype="u8")[::2], "q").to_pylist() == [0, 2, 4]


def test_a_time_is_rounded_down_before_the_epoch_too():
    found = columns.timestamps(np.array([1_999, -1], "i8")).cast(pa.int64())
    assert found.to_pylist() == [1, -1]


@pytest.mark.parametrize("text", ["q", "naïve", ""])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_constant_is_in_every_row(text, rows):
    assert columns.constant(text, rows).to_pylist() == [text] * rows


def test_decimals_get_one_scale():
    values, scales = np.array([5, -123, 0], "i8"), np.array([0, 2, 3], "u1")
    assert columns.decimals(values, scales, 3).to_pylist() == [
        Decimal("5.000"),
        Decimal("-1.230"),
        Decimal("0.000"),
    ]


def test_a_decimal_that_does_not_fit_the_column_is_refused():
    with pytest.raises(tw.InvalidMessage, match="price_scale=4, column_scale=3"):
        columns.decimals(np.array([5], "i8"), np.array([4], "u1"), 3)


def test_no_rows_give_empty_columns():
    assert columns.decimals(np.array([], "i8"), np.array([], "u1"), 2).to_pylist() == []
    assert columns.texts(np.array([], "S4")).to_pylist() == []
    assert len(columns.structs(views(), np.dtype("<i8"))) == 0


@pytest.mark.parametrize("scale", [19, 38, 255])
def test_more_decimals_than_any_instrument_has_are_refused(scale):
    with pytest.raises(
        tw.InvalidMessage, match=f"price_scale={scale}, column_scale={scale}, max_scale=18"
    ):
        columns.decimals(np.array([5, 7], "i8"), np.array([0, scale], "u1"), scale)
