import pytest

import tapewire as tw
from tapewire.scan.options import ReadOptions


def parse(**options):
    return ReadOptions.parse({"path": "bus/md", **options})


def test_an_option_that_is_not_given_has_its_default():
    options = parse()
    assert (options.paths, options.view, options.on_damage) == (("bus/md",), "records", "raise")
    assert (options.types, options.partitions, options.shared) == (None, None, False)


def test_names_are_accepted_in_any_case():
    assert ReadOptions.parse({"PATH": "q", "Seq_From": "7"}).seq_from == 7


def test_a_list_of_paths_is_accepted_as_spark_passes_it():
    assert ReadOptions.parse({"paths": '["a", "b"]'}).paths == ("a", "b")


@pytest.mark.parametrize("text", ['{"a": 1}', "a", "[1]", "[]", '[""]'])
def test_invalid_paths_are_refused(text):
    with pytest.raises(tw.InvalidOption, match="path"):
        ReadOptions.parse({"paths": text})


def test_without_a_path_the_hint_shows_how_to_give_one():
    with pytest.raises(tw.InvalidOption, match=r'no path is given; .*\.load\("bus/md"\)'):
        ReadOptions.parse({"view": "records"})


def test_an_unknown_option_is_refused_with_a_similar_one():
    with pytest.raises(tw.InvalidOption, match="no such option: partition; did you mean"):
        parse(partition="4")


def test_an_unknown_option_without_a_similar_one_is_refused_with_all():
    with pytest.raises(tw.InvalidOption, match="one of: columns, features, flat"):
        parse(xyzzy="1")


def test_an_option_of_another_view_is_refused():
    with pytest.raises(tw.InvalidOption, match="levels, view=records; the option is for book"):
        parse(levels="5")


def test_types_are_decimal_or_hexadecimal():
    assert parse(types="0x10, 3,3").types == (3, 16)


@pytest.mark.parametrize("text", ["65535", "-1", "x", "1,,2", ""])
def test_invalid_types_are_refused(text):
    with pytest.raises(tw.InvalidOption, match="types"):
        parse(types=text)


def test_times_are_nanoseconds_or_iso_with_a_zone():
    options = parse(time_from="1709294400000000001", time_to="2024-03-01T12:00:01Z")
    assert (options.time_from, options.time_to) == (1709294400000000001, 1709294401000000000)


@pytest.mark.parametrize("text", ["2024-03-01T12:00", "yesterday", str(2**63), ""])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(tw.InvalidOption, match="time"):
        parse(time_from=text)


def test_symbols_may_have_a_venue():
    assert parse(symbols="okx:BTC-USDT, ETH").symbols == (("okx", "BTC-USDT"), (None, "ETH"))


@pytest.mark.parametrize("text", [":BTC", "okx:", ","])
def test_an_invalid_symbol_is_refused(text):
    with pytest.raises(tw.InvalidOption, match="symbols"):
        parse(symbols=text)


def test_a_repeated_column_is_refused():
    with pytest.raises(tw.InvalidOption, match="columns has a duplicate: seq"):
        parse(columns="seq,payload,seq")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("view", "candles"),
        ("on_damage", "ignore"),
        ("shared", "yes"),
        ("partitions", "0"),
        ("partitions", "many"),
        ("seq_from", "-1"),
        ("max_rows", "0"),
        ("reader", ""),
    ],
)
def test_an_invalid_value_is_refused_with_the_name_of_the_option(name, text):
    with pytest.raises(tw.InvalidOption, match=name):
        parse(**{name: text})


def test_a_range_that_ends_before_it_begins_is_refused():
    with pytest.raises(tw.InvalidOption, match="seq_from=9, seq_to=8"):
        parse(seq_from="9", seq_to="8")


def test_the_view_messages_needs_a_type():
    with pytest.raises(tw.InvalidOption, match="type"):
        parse(view="messages")
