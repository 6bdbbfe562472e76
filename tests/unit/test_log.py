"""The registry of kinds, paths that are not logs, and the registry of decoders."""

import sys
import types

import pytest

import tapewire as tw
from tapewire import log


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        writer.append(0x2001, b"hello")
    return tmp / "q"


@pytest.fixture
def kinds():
    """`kinds(*added)`: register more kinds for one test."""
    before = log._kinds
    yield lambda *added: log.register_kinds([*before, *added])
    log.register_kinds(before)


@pytest.fixture
def decoders():
    before = dict(log._decoders)
    yield log._decoders
    log._decoders.clear()
    log._decoders.update(before)


def test_an_empty_directory_is_not_a_log(tmp):
    for ask in (tw.kind_of, tw.open_log):
        with pytest.raises(tw.NotALog) as caught:
            ask(tmp)
        assert caught.value.path == str(tmp)
        assert caught.value.hint


def test_a_file_is_not_a_log(tmp):
    (tmp / "file").write_text("hello")
    with pytest.raises(tw.NotALog):
        tw.kind_of(tmp / "file")


def test_a_directory_with_the_name_of_the_marker_is_not_a_log(tmp):
    (tmp / "control.meta").mkdir()
    with pytest.raises(tw.NotALog):
        tw.kind_of(tmp)


def test_a_path_that_does_not_exist_is_not_found(tmp):
    for ask in (tw.kind_of, tw.open_log):
        with pytest.raises(FileNotFoundError) as caught:
            ask(tmp / "none")
        assert caught.value.filename == str(tmp / "none")


@pytest.mark.parametrize("wrong", [None, 3, b"queue"], ids=repr)
def test_where_must_be_text_or_a_path(wrong):
    with pytest.raises(TypeError):
        tw.kind_of(wrong)


def test_a_kind_is_recognised_by_its_marker(queue):
    assert tw.kind_of(queue) == "queue"
    assert tw.kind_of(f"{queue}/") == "queue"


def test_a_link_to_a_log_is_that_log(queue, tmp):
    (tmp / "link").symlink_to(queue)
    assert tw.kind_of(tmp / "link") == "queue"
    with tw.open_log(tmp / "link") as reader:
        assert reader.next().seq == 0


def test_a_kind_is_recognised_by_its_marker_and_opened_by_its_module(kinds, monkeypatch, tmp):
    (tmp / "a.kind").touch()
    opened = []
    module = types.ModuleType("a_kind")
    module.open_reader = lambda where, wanted: opened.append((where, wanted)) or "a reader"
    monkeypatch.setitem(sys.modules, "a_kind", module)
    kinds(log.Kind("ring", "a_kind", marker="a.kind"))
    assert tw.kind_of(tmp) == "ring"
    assert tw.open_log(tmp, types={1}) == "a reader"
    assert opened == [(str(tmp), {1})]


def test_the_module_of_a_kind_is_imported_only_when_a_log_is_opened(kinds, tmp):
    (tmp / "a.kind").touch()
    kinds(log.Kind("far", "no_such_module_anywhere", marker="a.kind"))
    assert tw.kind_of(tmp) == "far"
    with pytest.raises(ModuleNotFoundError):
        tw.open_log(tmp)


def test_a_registered_decoder_decodes_records_of_its_type(queue, decoders):
    log.register_decoder(0x2001, lambda record: bytes(record.payload).decode().upper())
    with tw.open_log(queue) as reader:
        assert reader.next().decode() == "HELLO"


def test_a_type_without_a_decoder_is_named(queue):
    with tw.open_log(queue) as reader:
        record = reader.next()
    with pytest.raises(log.UnknownMessage, match="0x2001") as caught:
        record.decode()
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, tw.TapewireError)


def test_an_error_in_a_decoder_is_raised(queue, decoders):
    log.register_decoder(0x2001, lambda record: 1 / 0)
    with tw.open_log(queue) as reader, pytest.raises(ZeroDivisionError):
        reader.next().decode()


def test_the_queue_s_reader_is_a_reader(queue):
    with tw.open_log(queue) as reader:
        assert isinstance(reader, log.Reader)
        assert reader.kind == "queue"


def test_public_names_are_listed_and_exist():
    assert sorted(set(tw.__all__)) == sorted(tw.__all__)
    for name in tw.__all__:
        assert hasattr(tw, name), name
