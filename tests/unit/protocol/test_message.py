"""Message classes, for the programs that define them and create instances."""

import copy
import gc
import math
import pickle
from enum import IntEnum
from typing import Annotated, ClassVar

import numpy as np
import pytest

import tapewire as tw
from tapewire import protocol
from tapewire.protocol.messages import make_class


@tw.message(0x2F01)
class Everything:
    """All types, with names that hide built-ins and attributes of tuple."""

    len: tw.u8
    count: tw.u16
    index: tw.u32
    bytes: tw.u64
    memoryview: tw.i8
    ValueError: tw.i16
    tuple: tw.i32
    print: tw.i64
    f: tw.f32
    g: tw.f64
    b: tw.bool8
    text: tw.char[5]
    blob: tw.raw[3]
    levels: tw.i64[3]
    switches: tw.bool8[2]


protocol.forget(Everything)

VALUES = {
    "len": 255,
    "count": 65535,
    "index": 2**32 - 1,
    "bytes": 2**64 - 1,
    "memoryview": -128,
    "ValueError": -(2**15),
    "tuple": -(2**31),
    "print": -(2**63),
    "f": 0.5,
    "g": math.pi,
    "b": True,
    "text": "añb",
    "blob": b"\x00\x01\x00",
    "levels": (1, -2, 3),
    "switches": (False, True),
}


def test_every_type_has_its_extreme_values():
    message = Everything(**VALUES)
    assert protocol.asdict(message) == VALUES
    assert Everything.decode(bytes(message)) == message


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("len", 256, "must be from 0 to 255 (u8)"),
        ("len", -1, "must be from 0 to 255 (u8)"),
        ("len", "1", "must be an int (u8)"),
        ("len", 1.0, "must be an int (u8)"),
        ("len", None, "must be an int (u8)"),
        ("print", 2**63, "must be from -9223372036854775808 to 9223372036854775807 (i64)"),
        ("bytes", 2**64, "must be from 0 to 18446744073709551615 (u64)"),
        ("f", 1e300, "must be a float (f32)"),
        ("g", "1.5", "must be a float (f64)"),
        ("b", 1, "must be True or False (bool8)"),
        ("b", "no", "must be True or False (bool8)"),
        ("text", "sechs!", "must have at most 5 bytes of UTF-8, it has 6"),
        ("text", "ñññ", "must have at most 5 bytes of UTF-8, it has 6"),
        ("text", "a\0", "must not contain NUL"),
        ("text", b"abc", "must be a str (char[5])"),
        ("text", "\ud800", "must be valid UTF-8"),
        ("blob", b"12", "must have 3 bytes, it has 2"),
        ("blob", b"1234", "must have 3 bytes, it has 4"),
        ("blob", 3, "must be bytes (raw[3])"),
        ("blob", "abc", "must be bytes (raw[3])"),
        ("levels", (1, 2), "must have 3 elements, it has 2"),
        ("levels", 7, "must be a sequence (i64[3])"),
        ("levels", (1, 2, 2**63), "must be from -9223372036854775808"),
        ("levels", "abc", "must be an int (i64)"),
        ("switches", (1, 0), "must be True or False (bool8)"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_field_and_value(field, value, why):
    with pytest.raises(tw.InvalidMessage) as caught:
        Everything(**VALUES | {field: value})
    assert str(caught.value).startswith(f"Everything.{field} {why}")
    assert str(caught.value).endswith(f"{field}={value!r}")
    assert isinstance(caught.value, ValueError)


def test_arrays_of_wrong_lengths_with_the_right_total_are_refused():
    @tw.message(0x2F02)
    class Two:
        a: tw.u8[2]
        b: tw.u8[3]

    with pytest.raises(tw.InvalidMessage, match=r"Two\.a must have 2 elements, it has 3"):
        Two((1, 2, 3), (4, 5))


def test_arguments_by_position_by_name_and_by_default():
    @tw.message(0x2F02)
    class Order:
        price: tw.i64
        qty: tw.i64 = 10
        side: tw.u8 = 1

    assert Order(5) == Order(price=5) == Order(5, 10, side=1)
    assert Order(5, side=2).side == 2
    with pytest.raises(TypeError, match="price"):
        Order()
    with pytest.raises(TypeError, match="colour"):
        Order(5, colour=1)


def test_an_instance_is_immutable(fill):
    message = fill(1, 2, 3, 1, "XNAS")
    for name in ("price", "colour"):
        with pytest.raises(AttributeError):
            setattr(message, name, 9)
    with pytest.raises(AttributeError):
        del message.price


def test_equal_values_of_one_class_are_equal_and_hash_alike(fill):
    one, same, other = (fill(1, 2, qty, 1, "XNAS") for qty in (3, 3, 4))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2


def test_a_message_is_not_equal_to_a_tuple_or_to_another_class(fill):
    @tw.message(0x2F02)
    class Twin:
        order_id: tw.u64
        price: tw.i64
        qty: tw.i64
        side: tw.u8
        venue: tw.char[8]

    values = (1, 2, 3, 1, "XNAS")
    assert fill(*values) != values
    assert fill(*values) != Twin(*values)
    assert tuple(fill(*values)) == values


def test_the_repr_is_the_call_that_creates_it(fill):
    message = fill(1, 2, 3, 1, "XNAS")
    assert repr(message) == "Fill(order_id=1, price=2, qty=3, side=1, venue='XNAS')"


def test_values_are_those_that_a_reader_gets():
    class Side(IntEnum):
        BUY = 1

    @tw.message(0x2F02)
    class Loose:
        n: tw.i64
        side: tw.u8
        x: tw.f32
        rows: tw.i32[2]

    message = Loose(np.int64(5), Side.BUY, 0.1, np.array([1, 2]))
    assert [type(value) for value in message] == [int, int, float, tuple]
    assert message == Loose.decode(bytes(message))
    assert message.x == float(np.float32(0.1))


def test_a_message_can_be_pickled_copied_and_matched():
    message = Everything(**VALUES)
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    match message:
        case Everything(len=n, text=text):
            assert (n, text) == (255, "añb")
        case _:
            pytest.fail("does not match its own class")


def test_replace_checks_like_a_new_one(fill):
    message = fill(1, 2, 3, 1, "XNAS")
    assert protocol.replace(message, qty=4) == fill(1, 2, 4, 1, "XNAS")
    assert message.qty == 3
    with pytest.raises(tw.InvalidMessage, match="qty"):
        protocol.replace(message, qty="4")


def test_methods_properties_and_class_variables_are_kept():
    @tw.message(0x2F02)
    class Trade:
        """A trade."""

        unit: ClassVar[int] = 100
        price: tw.i64
        qty: tw.i64

        @property
        def notional(self):
            return self.price * self.qty * self.unit

        def __repr__(self):
            return "my " + super().__repr__()

    assert Trade(2, 3).notional == 600
    assert repr(Trade(2, 3)) == "my Trade(price=2, qty=3)"
    assert Trade.__doc__ == "A trade."
    assert Trade.dtype.names == ("price", "qty")


def test_a_class_may_derive_from_message_and_annotate_python_types():
    @tw.message(0x2F02)
    class Typed(tw.Message):
        n: Annotated[int, tw.u8]
        venue: Annotated[str, "where", tw.char[4]]

    assert Typed.layout().size == 5
    assert isinstance(Typed(1, "x"), tw.Message)


FUTURE = """
from __future__ import annotations
import tapewire as tw

def define():
    import tapewire as inner
    size = 8

    @inner.message(0x2F02)
    class Late:
        price: inner.i64
        venue: inner.char[size]

    return Late

@tw.message(0x2F03)
class Early:
    price: tw.i64 = 3
"""


def test_annotations_may_be_strings():
    scope = {"__name__": "somewhere"}
    exec(FUTURE, scope)
    assert scope["define"]()(1, "x").venue == "x"
    assert scope["Early"]().price == 3


def test_an_annotation_that_cannot_be_evaluated_is_refused():
    with pytest.raises(tw.InvalidMessage, match=r"cannot evaluate an annotation of Bad.*nowhere"):

        @tw.message(0x2F02)
        class Bad:
            price: "nowhere.i64"  # noqa: F821


@pytest.mark.parametrize(
    ("annotations", "values", "why"),
    [
        ({}, {}, "1 to 255 fields: fields=0"),
        ({"price": int}, {}, "Bad.price must have one type of fixed size"),
        ({"price": tw.char}, {}, "the type has no length: field='price', type=char"),
        ({"_price": tw.u8}, {}, "must be an identifier: field='_price'"),
        ({"dtype": tw.u8}, {}, "is an attribute of every message: field='dtype'"),
        ({"type_id": tw.u8}, {}, "is an attribute of every message: field='type_id'"),
        ({"a": tw.u8}, {"a": 256}, "default of Bad.a must be from 0 to 255 (u8): a=256"),
        ({"a": tw.u8, "b": tw.u8}, {"a": 1}, "follows one with a default: field='b'"),
        ({"a": tw.u8}, {"__init__": lambda self: None}, "define __init__: @message makes it"),
        ({"a": tw.u8}, {"decode": lambda self: None}, "define decode: @message makes it"),
        ({"a": tw.raw[65536], "b": tw.u8}, {}, "size must be from 1 to 65536: size=65537"),
    ],
)
def test_an_invalid_definition_is_refused(annotations, values, why):
    bad = type("Bad", (), {"__annotations__": annotations, **values})
    with pytest.raises(tw.InvalidMessage) as caught:
        tw.message(0x2F02)(bad)
    assert why in str(caught.value)
    assert protocol.known(0x2F02) == {}


@pytest.mark.parametrize("type_id", [-1, 0xFFFF, 1.0, "1", True, None])
def test_a_type_id_that_no_record_can_have_is_refused(type_id):
    with pytest.raises(tw.InvalidTypeId, match="type_id="):

        @tw.message(type_id)
        class Bad:
            a: tw.u8


@pytest.mark.parametrize("version", [0, -1, 65536, 1.0, True])
def test_a_version_is_an_integer_from_1(version):
    with pytest.raises(tw.InvalidMessage, match="version="):

        @tw.message(0x2F02, version=version)
        class Bad:
            a: tw.u8


@pytest.mark.parametrize("wrong", [0, 1, -1, 2.0, True, 8193])
def test_an_array_has_at_least_two_elements_and_a_maximum(wrong):
    with pytest.raises(tw.InvalidMessage, match="count must be from 2 to 8192"):
        tw.i64[wrong]


def test_an_array_has_one_dimension():
    for made in (tw.i64[2], tw.char[2]):
        with pytest.raises(tw.InvalidMessage, match="one dimension"):
            made[2]


def test_a_class_is_complete_whenever_garbage_is_collected():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        made = [make_class(Everything.layout()) for _ in range(20)]
    finally:
        gc.set_threshold(*before)
    assert all(cls(**VALUES).levels == (1, -2, 3) for cls in made)


def test_a_base_class_is_refused(fill):
    class Derived(fill):
        more: tw.u8

    with pytest.raises(tw.InvalidMessage, match="must have no base class but"):
        tw.message(0x2F02)(Derived)


def test_fields_may_have_the_names_of_parameters():
    @tw.message(0x2F77)
    class Odd:
        self: tw.u8
        message: tw.u8
        cls: tw.u8

    odd = Odd(self=1, message=2, cls=3)
    assert protocol.replace(odd, message=4) == Odd(1, 4, 3)
    assert odd.__replace__(self=5, cls=6) == Odd(5, 2, 6)
