"""The text of errors, their built-in base classes, and the native codes they stand for."""

import errno
import re
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import errors

NATIVE = Path(__file__).resolve().parents[2] / "native/include/tapewire/error.hpp"


def native_codes():
    """``{name: number}`` of tapewire::Errc."""
    body = re.search(r"enum class Errc[^{]*\{(.*?)\};", NATIVE.read_text(), re.DOTALL)[1]
    body = re.sub(r"//[^\n]*", "", body)
    names = [name.split("=")[0].strip() for name in body.split(",") if name.strip()]
    assert re.search(rf"{names[0]}\s*=\s*1\b", body)
    return {name: number for number, name in enumerate(names, 1)}


def make(code, message="x=1", path="", offset=-1, hint="", number=0, numbers=(0, 0, 0)):
    return errors.from_native(code, message, path, offset, hint, number, numbers)


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize(("name", "code"), native_codes().items())
def test_every_native_code_has_the_class_of_its_name(name, code):
    expected = {"os_error": "StorageError", "not_a_log": "NotALog"}.get(name, camel(name))
    assert type(make(code)).__name__ == expected


def test_there_are_no_classes_for_codes_that_do_not_exist():
    assert len(errors._BY_CODE) == len(native_codes())


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "x must rise: x=1"),
        ({"path": "q/0.q"}, "x must rise: x=1 [q/0.q]"),
        ({"path": "q/0.q", "offset": 64}, "x must rise: x=1 [q/0.q at offset 64]"),
        ({"path": "q/0.q", "offset": 0}, "x must rise: x=1 [q/0.q at offset 0]"),
        ({"hint": "raise x"}, "x must rise: x=1; raise x"),
        (
            {"path": "q/0.q", "offset": 64, "hint": "raise x"},
            "x must rise: x=1 [q/0.q at offset 64]; raise x",
        ),
    ],
)
@pytest.mark.parametrize("kind", [tw.TapewireError, tw.CorruptRecord, tw.StorageError, tw.DiskFull])
def test_the_text_is_the_constraint_then_where_then_the_remedy(kind, where, text):
    assert str(kind("x must rise: x=1", **where)) == text


def test_attributes_that_do_not_apply_are_none():
    error = tw.TapewireError("x")
    assert (error.path, error.offset, error.hint, error.appended) == (None, None, None, None)


def test_the_native_parts_become_attributes():
    error = make(native_codes()["corrupt_record"], path="q/0.q", offset=64, hint="skip it")
    assert (error.path, error.offset, error.hint) == ("q/0.q", 64, "skip it")
    assert error.message == "x=1"


@pytest.mark.parametrize(
    ("number", "builtin"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.EEXIST, FileExistsError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EISDIR, IsADirectoryError),
        (errno.EIO, OSError),
        (errno.EROFS, OSError),
    ],
)
def test_an_operating_system_failure_is_the_built_in_error_and_tapewire_s(number, builtin):
    error = make(native_codes()["os_error"], "cannot open: no", "q", number=number)
    assert isinstance(error, builtin)
    assert isinstance(error, tw.StorageError)
    assert isinstance(error, tw.TapewireError)
    assert error.errno == number
    assert error.filename == "q"
    assert error.strerror
    assert str(error) == "cannot open: no [q]"
    assert type(error) is type(make(native_codes()["os_error"], number=number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_os_error_and_tapewire_s(number):
    error = make(native_codes()["disk_full"], "no room", "q", number=number)
    assert type(error) is tw.DiskFull
    assert isinstance(error, OSError)
    assert isinstance(error, tw.TapewireError)
    assert error.errno == number


def test_a_missing_directory_is_file_not_found(tmp):
    for open_it in (
        lambda: tw.open_log(tmp / "none"),
        lambda: tw.kind_of(tmp / "none"),
        lambda: tw.open_subscriber(tmp / "none", "r"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            open_it()
        assert "none" in str(caught.value)


def test_a_file_where_the_queue_should_be_is_an_os_error(tmp):
    (tmp / "file").write_text("hello")
    with pytest.raises(OSError, match="file"):
        tw.open_publisher(tmp / "file")


def test_a_gap_has_its_first_and_last_number():
    error = make(native_codes()["gap_detected"], numbers=(5, 7, 0))
    assert (error.first, error.last) == (5, 7)


def test_a_missing_segment_has_the_committed_position_and_the_first_seq():
    error = make(native_codes()["segment_missing"], numbers=(3, 128, 99))
    assert error.committed == (3, 128)
    assert error.first_available_seq == 99


@pytest.mark.parametrize(
    "kind",
    [
        tw.PayloadTooLarge,
        tw.InvalidTypeId,
        tw.InvalidOption,
        tw.InvalidName,
        tw.ClosedHandle,
        tw.SequenceNotRising,
    ],
)
def test_invalid_arguments_are_value_errors(kind):
    assert issubclass(kind, ValueError)


def test_a_checksum_mismatch_is_a_corrupt_record():
    assert issubclass(tw.ChecksumMismatch, tw.CorruptRecord)


def test_every_public_error_is_exported_and_documented():
    for name in errors.__all__:
        kind = getattr(tw, name)
        assert issubclass(kind, tw.TapewireError)
        assert kind.__doc__
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TapewireError)
    }
    assert own == set(errors.__all__)
    assert list(errors.__all__) == sorted(errors.__all__)
