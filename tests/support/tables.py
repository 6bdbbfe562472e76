"""Arrow tables of features, compared to the last bit."""


def assert_same(got, want):
    """The same columns, rows, nulls and doubles: by their bytes, so that -0.0 is not 0.0."""
    assert got.schema == want.schema
    assert got.num_rows == want.num_rows
    for name in want.column_names:
        a, b = got[name].combine_chunks(), want[name].combine_chunks()
        if name in ("timestamp_ns", "symbol"):
            assert a == b, name
        else:
            assert a.is_valid() == b.is_valid(), name
            assert a.fill_null(0).to_numpy().tobytes() == b.fill_null(0).to_numpy().tobytes(), name
