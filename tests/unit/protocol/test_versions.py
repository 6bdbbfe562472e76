"""Versions of a message: identified by size, in this program and in a log's types.json."""

import pytest

import tapewire as tw
from tapewire import protocol
from tapewire.protocol import types_file


def define(version, *names, type_id=0x2001, name="Fill", kind=tw.u64):
    made = type(name, (), {"__annotations__": dict.fromkeys(names, kind)})
    return tw.message(type_id, version=version)(made)


def define_apart(*args, **options):
    """Define it as another program would: unknown in this one."""
    cls = define(*args, **options)
    protocol.forget(cls)
    return cls


def records_of(queue, *messages):
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        for message in messages:
            writer.append_message(message)
    with tw.open_log(queue) as reader:
        return reader.read_batch()


def test_records_of_several_versions_decode_each_to_its_own(queue):
    old, new = define(1, "a"), define(2, "a", "b")
    batch = records_of(queue, old(1), new(2, 3), old(4))
    assert [record.decode() for record in batch] == [old(1), new(2, 3), old(4)]
    assert [layout.version for layout in types_file.read(queue)] == [1, 2]


def test_versions_may_be_defined_in_any_order(queue):
    new, old = define(2, "a", "b"), define(1, "a")
    batch = records_of(queue, old(1), new(2, 3))
    assert [type(record.decode()) for record in batch] == [old, new]


def test_a_newer_version_is_refused_with_the_remedy(queue):
    new = define_apart(2, "a", "b")
    batch = records_of(queue, new(1, 2))
    old = define(1, "a")
    for decode in (batch[0].decode, lambda: old.decode(batch[0]), lambda: old.decode(batch)):
        with pytest.raises(tw.UnsupportedVersion) as caught:
            decode()
        text = str(caught.value)
        assert "newer than the versions" in text
        assert "payload=16 bytes, known=Fill version 1 (8 bytes)" in text
        assert "use a release that defines" in text


def test_an_older_version_that_is_not_defined_is_refused_with_the_remedy(queue):
    batch = records_of(queue, define_apart(1, "a")(1))
    define(2, "a", "b")
    with pytest.raises(tw.UnsupportedVersion, match="define the older version beside the newer"):
        batch[0].decode()


def test_a_class_decodes_only_its_own_version(queue):
    old, new = define(1, "a"), define(2, "a", "b")
    batch = records_of(queue, old(1), new(2, 3))
    with pytest.raises(tw.UnsupportedVersion):
        new.decode(batch[0])
    with pytest.raises(tw.UnsupportedVersion):
        new.decode(batch)
    assert new.decode(batch[1:])["b"].tolist() == [3]


@pytest.mark.parametrize(
    "other",
    [
        {"names": ("b",)},
        {"names": ("a", "b")},
        {"names": ("a",), "kind": tw.i64},
        {"names": ("a",), "name": "Trade"},
    ],
)
def test_another_message_with_the_same_id_and_version_replaces_it(other, queue, caplog):
    define(1, "a")
    names = other.pop("names")
    again = define(1, *names, **other)
    assert protocol.known(0x2001) == {1: again}
    assert type(records_of(queue, again(*range(len(names))))[0].decode()) is again
    assert not caplog.records, "the same module may change its mind, as a notebook does"


def test_replacing_the_message_of_another_module_is_logged(caplog):
    define(1, "a").__module__ = "another.package"
    define(1, "b")
    assert "another.package" in caplog.text


def test_a_changed_version_drops_the_others_that_conflict_with_it():
    define(1, "a")
    define(2, "a", "b")
    third = define(3, "a", "b", "c")
    first = define(1, "a", "b")
    assert protocol.known(0x2001) == {1: first, 3: third}


def test_the_same_definition_again_replaces_the_class(queue):
    define(1, "a")
    again = define(1, "a")
    assert protocol.known(0x2001) == {1: again}
    assert type(records_of(queue, again(1))[0].decode()) is again


@pytest.mark.parametrize("names", [("a", "b"), ("a",)])
def test_a_higher_version_must_be_larger(names):
    define(1, "a", "b")
    with pytest.raises(tw.LayoutConflict, match="a newer version must be larger"):
        define(2, *names, kind=tw.i64)


def test_a_lower_version_must_be_smaller():
    define(2, "a")
    with pytest.raises(tw.LayoutConflict, match="a newer version must be larger"):
        define(1, "a", "b")


def test_a_log_refuses_another_layout_of_a_version_it_has(queue):
    records_of(queue, define_apart(1, "a")(1))
    other = define(1, "b")
    with tw.open_publisher(queue) as writer:
        with pytest.raises(tw.LayoutConflict) as caught:
            writer.append_message(other(1))
        assert writer.next_seq == 1
    assert caught.value.path == str(queue / "types.json")
    assert "Fill(a: u64 @0; 8 bytes) and Fill(b: u64 @0; 8 bytes)" in str(caught.value)


def test_a_log_refuses_a_version_not_distinguishable_from_one_it_has(queue):
    records_of(queue, define_apart(1, "a")(1))
    with (
        tw.open_publisher(queue) as writer,
        pytest.raises(tw.LayoutConflict, match="must be larger"),
    ):
        writer.append_message(define(2, "b")(1))


def test_a_log_keeps_every_version_it_has_had(queue):
    records_of(queue, define_apart(1, "a")(1))
    records_of(queue, define_apart(3, "a", "b", "c")(1, 2, 3))
    records_of(queue, define_apart(2, "a", "b")(1, 2))  # an older program, restarted
    assert [layout.version for layout in types_file.read(queue)] == [1, 2, 3]


def test_nothing_of_a_declaration_is_written_when_one_part_is_refused(queue):
    records_of(queue, define_apart(1, "a")(1))
    other, good = define(1, "b"), define(1, "a", type_id=0x2002, name="Good")
    before = (queue / "types.json").read_bytes()
    with tw.open_publisher(queue) as writer, pytest.raises(tw.LayoutConflict):
        protocol.declare(writer, good, other)
    assert (queue / "types.json").read_bytes() == before
