"""Properties of all layouts, values and files."""

import json

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire.protocol import asdict, types_file
from tapewire.protocol.fields import BY_NAME, is_name
from tapewire.protocol.layout import RESERVED, MessageLayout
from tapewire.protocol.messages import make_class

QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

NUMBERS = [name for name in BY_NAME if name not in ("char", "raw")]
kinds = st.one_of(
    st.sampled_from(NUMBERS).map(BY_NAME.__getitem__),
    st.builds(lambda name, n: BY_NAME[name][n], st.sampled_from(NUMBERS), st.integers(2, 5)),
    st.builds(
        lambda name, n: BY_NAME[name][n], st.sampled_from(["char", "raw"]), st.integers(1, 9)
    ),
)
names = st.one_of(
    st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True),
    # Names that could collide with those in generated code.
    st.sampled_from(
        ["self", "cls", "len", "bytes", "count", "index", "tuple", "struct", "v", "b0"]
    ),
).filter(lambda name: is_name(name) and name not in RESERVED)


layouts = st.builds(
    lambda fields: MessageLayout.natural("M", 0x2001, 1, fields),
    st.lists(st.tuples(names, kinds), min_size=1, max_size=8, unique_by=lambda field: field[0]),
)


def element(kind):
    if kind.name == "bool8":
        return st.booleans()
    if kind.name[0] == "f":
        return st.floats(width=8 * kind.item_bytes, allow_nan=False)
    bits = 8 * kind.item_bytes
    if kind.name[0] == "u":
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def value(kind):
    if kind.name == "raw":
        return st.binary(min_size=kind.count, max_size=kind.count)
    if kind.name == "char":
        text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=kind.count)
        return text.filter(lambda text: len(text.encode()) <= kind.count)
    if kind.array:
        return st.tuples(*[element(kind)] * kind.count)
    return element(kind)


@st.composite
def messages(draw):
    cls = make_class(draw(layouts))
    return cls(*(draw(value(field.type)) for field in cls.layout().fields))


@QUICK
@given(messages())
def test_a_message_survives_its_bytes(message):
    payload = bytes(message)
    assert len(payload) == message.layout().size
    assert type(message).decode(payload) == message


@QUICK
@given(messages())
def test_numpy_reads_the_same_values_as_struct(message):
    row = np.frombuffer(bytes(message), message.dtype)[0]
    for field in message.layout().fields:
        mine, numpys = asdict(message)[field.name], row[field.name]
        if field.type.name == "char":
            assert numpys == mine.encode()
        elif field.type.name == "raw":
            assert numpys.tobytes() == mine
        elif field.type.array:
            assert numpys.tolist() == list(mine)
        else:
            assert numpys.item() == mine
    assert message.dtype.itemsize == message.layout().size


@QUICK
@given(layouts)
def test_numpy_aligns_fields_as_the_layout_does(layout):
    aligned = np.dtype([(f.name, f.type.numpy_format) for f in layout.fields], align=True)
    assert aligned.itemsize == layout.size
    assert [aligned.fields[f.name][1] for f in layout.fields] == [f.offset for f in layout.fields]


@QUICK
@given(st.lists(layouts, max_size=3, unique_by=lambda layout: layout.size))
def test_layouts_survive_their_file(some):
    ordered = sorted(some, key=lambda layout: layout.size)
    versions = [
        MessageLayout(layout.name, layout.type_id, n, layout.size, layout.fields)
        for n, layout in enumerate(ordered, 1)
    ]
    assert types_file.parse(types_file.render(versions), "types.json") == versions


@QUICK
@given(layouts, st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(layout, noise):
    payload = (noise * (layout.size + 1))[: layout.size].ljust(layout.size, b"\xff")
    try:
        message = make_class(layout).decode(payload)
    except tw.CorruptRecord:
        assert any(field.type.name == "char" for field in layout.fields)
    else:
        assert len(bytes(message)) == layout.size


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def places(value, path=()):
    """Return the paths to all values in a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def read_or_refused(text):
    """Return the content of the file, or None; only errors about files are caught."""
    try:
        return types_file.parse(text, "types.json"), "types.json"
    except (tw.CorruptMetadata, tw.UnsupportedVersion) as error:
        return [], error.path


@QUICK
@given(st.data(), layouts)
def test_a_file_with_any_value_anywhere_is_read_or_refused(data, layout):
    document = json.loads(types_file.render([layout]))
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([p for p in places(document) if p]))
        at = document
        for key in way:
            at = at[key]
        if data.draw(st.booleans()):
            at[last] = data.draw(json_values | st.integers(-1, 70000) | st.sampled_from([*BY_NAME]))
        else:
            del at[last]
    read, path = read_or_refused(json.dumps(document).encode())
    assert path == "types.json"
    for made in read:
        assert make_class(made).dtype.itemsize == made.size


@QUICK
@given(layouts, st.integers(0, 10_000), st.binary(max_size=6), st.integers(0, 6))
def test_a_file_with_flipped_bytes_is_read_or_refused(layout, at, put, cut):
    text = types_file.render([layout])
    at %= len(text)
    assert read_or_refused(text[:at] + put + text[at + cut :])[1] == "types.json"
