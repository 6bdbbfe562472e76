"""Damaged files around the records: repaired or refused by name, never trusted.

Every file of a queue is flipped byte by byte, truncated, extended and emptied. Opening the queue
then raises a typed error that names the file, or gives exactly the original records.
"""

import itertools

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.damaged_files import (
    ACTIVE,
    CONTROL,
    FILES,
    HINTS,
    INDEXES,
    READER,
    SEALED,
    Original,
    damaged_in,
    drain,
    flips,
    key,
    lengths,
    run_all,
    survey,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return Original(tmp_path_factory.mktemp("original") / "q")


def test_the_queue_under_test_is_complete(original, tmp):
    directory = original.write(tmp / "q")
    assert survey(original, directory, must_open=True)


# ---- byte by byte -------------------------------------------------------------------------------


def test_each_flipped_byte_of_control_is_refused_or_harmless(original, tmp):
    data = original.files[CONTROL]
    fields = {
        at + n
        for at, code in qf.LAYOUTS["ControlBlock"][1].values()
        for n in range(4 if code == "I" else 8)
    }
    run_all(original, tmp, CONTROL, flips(data, sorted(fields)))
    # Reserved bytes have no meaning yet: the queue opens whatever they are.
    reserved = [n for n in range(512) if n not in fields]
    run_all(original, tmp, CONTROL, flips(data, reserved[::5], (0xFF,)), must_open=True)


@pytest.mark.parametrize("field", ["magic", "version", "init_state", "segment_size"])
def test_a_damaged_field_of_control_is_named(original, tmp, field):
    data = bytearray(original.files[CONTROL])
    at, _ = qf.LAYOUTS["ControlBlock"][1][field]
    data[at] ^= 0x20
    for error in damaged_in(original, tmp, CONTROL, data):
        assert isinstance(error, tw.CorruptMetadata | tw.UnsupportedVersion)
        assert error.path.endswith(CONTROL)
        # A check covers the fields that never change.
        name = "check" if field in ("version", "segment_size") else field
        assert error.offset == qf.LAYOUTS["ControlBlock"][1][name][0]
        assert f"{name}=" in str(error)


@pytest.mark.parametrize(
    "field", ["writer_epoch", "segment_gen", "writer_heartbeat_ns", "notify_seq", "waiters_pending"]
)
@pytest.mark.parametrize("value", [1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_words_that_only_describe_the_state_may_have_any_value(original, tmp, field, value):
    data = bytearray(original.files[CONTROL])
    qf.poke(data, "ControlBlock", **{field: value})
    damaged_in(original, tmp, CONTROL, data, must_open=True)


@pytest.mark.parametrize("value", [0, 1, 64, 65, 8192, 2**40, 2**64 - 1])
@pytest.mark.parametrize("field", ["write_offset", "current_segment"])
def test_an_invalid_hint_of_the_position_hides_no_record(original, tmp, field, value):
    data = bytearray(original.files[CONTROL])
    qf.poke(data, "ControlBlock", **{field: value & 0xFFFFFFFF if "seg" in field else value})
    directory = original.write(tmp / "q")
    (directory / CONTROL).write_bytes(data)
    with tw.open_log(directory) as reader:
        assert [key(record) for record in reader] == original.records
    with tw.open_subscriber(directory, "late", start="latest") as reader:
        assert reader.next() is None
        with tw.open_publisher(directory) as writer:
            writer.append(1, b"new")
        assert bytes(reader.next().payload) == b"new"


@pytest.mark.parametrize("name", [SEALED, ACTIVE])
def test_each_flipped_byte_of_a_segment_header_is_refused_or_harmless(original, tmp, name):
    run_all(original, tmp, name, flips(original.files[name], range(64)))


@pytest.mark.parametrize("field", ["magic", "version", "segment_id", "header_check"])
def test_a_damaged_field_of_a_segment_header_is_refused_by_name(original, tmp, field):
    data = bytearray(original.files[SEALED])
    data[qf.LAYOUTS["SegmentHeader"][1][field][0]] ^= 0x04
    log, _, _ = damaged_in(original, tmp, SEALED, data)
    assert isinstance(log, tw.CorruptMetadata)
    assert log.path.endswith(SEALED)
    assert log.offset is not None


def test_a_lost_sealed_flag_hides_no_record(original, tmp):
    for name in (SEALED, "000000001.q"):
        data = bytearray(original.files[name])
        qf.poke(data, "SegmentHeader", flags=0)
        log, _, writer = damaged_in(original, tmp, name, data)
        assert writer == original.records  # a writer seals it again
        assert log == original.records or isinstance(log, tw.CorruptMetadata)


@pytest.mark.parametrize("name", HINTS)
def test_each_flipped_byte_of_a_hint_changes_nothing(original, tmp, name):
    data = original.files[name]
    positions = range(0, len(data), 1 if len(data) < 500 else 61)
    run_all(original, tmp, name, flips(data, positions, (0x11,)), must_open=True)


@pytest.mark.parametrize("name", INDEXES)
def test_each_flipped_byte_of_a_seek_index_leaves_seeks_correct(original, tmp, name):
    directory = original.write(tmp / "q")
    for what, data in flips(original.files[name], range(len(original.files[name])), (0x01, 0x80)):
        (directory / name).write_bytes(data)
        assert_seeks_are_right(original, directory, what)


def assert_seeks_are_right(original, directory, what=""):
    records = original.records
    reached = list(itertools.accumulate((r[1] for r in records), max))
    with tw.open_log(directory) as reader:
        for index in (3, 17, 40, 41, 80, 118):
            assert reader.seek_seq(records[index][0]) is True, what
            assert key(reader.next()) == records[index], what
            first = reached.index(reached[index])
            assert reader.seek_time(reached[index]) is True, what
            assert key(reader.next()) == records[first], what
        assert reader.seek_seq(records[-1][0] + 1) is False, what
        assert reader.seek_time(reached[-1] + 1) is False, what
        assert reader.next() is None


def test_each_flipped_byte_of_a_readers_file_leaves_one_of_its_positions(original, tmp):
    data = original.files[READER]
    results = run_all(original, tmp, READER, flips(data, range(80)), must_open=True)
    # Slot 1 has the newer position: while it is valid, nothing is read again.
    for what, found in results.items():
        if int(what.split()[1]) < 40:
            assert found[1] == original.resumes[0], what


def test_a_readers_file_without_a_valid_slot_is_refused_and_can_be_replaced(original, tmp):
    data = bytearray(original.files[READER])
    data[3] ^= 1
    data[43] ^= 1
    directory = original.write(tmp / "q")
    (directory / READER).write_bytes(data)
    with pytest.raises(tw.CorruptMetadata) as info:
        tw.open_subscriber(directory, "x")
    assert info.value.path == str(directory / READER)
    assert "earliest" in info.value.hint
    with tw.open_subscriber(directory, "x", start="earliest") as reader:
        assert drain(reader) == original.records
        reader.commit()
    with tw.open_subscriber(directory, "x") as reader:
        assert reader.next() is None


@pytest.mark.parametrize(
    ("segment", "offset"),
    [(0, 0), (0, 63), (0, 65), (0, 8256), (1, 2**63), (2**32, 64), (2**64 - 1, 64), (10**9, 64)],
)
def test_an_invalid_position_of_a_reader_is_refused(original, tmp, segment, offset):
    directory = original.write(tmp / "q")
    (directory / READER).write_bytes(qf.reader_meta(qf.reader_slot(segment, offset, 8)))
    with pytest.raises(tw.CorruptMetadata) as info:
        tw.open_subscriber(directory, "x")
    assert info.value.path == str(directory / READER)
    assert f"segment={segment}" in str(info.value)
    assert info.value.hint


def test_a_readers_position_inside_a_record_resumes_with_that_record(original, tmp):
    inside = qf.stored_records(original.write(tmp / "look"))
    segment, record = next((s, r) for s, r in inside if len(r.payload) > 100)
    directory = original.write(tmp / "q")
    (directory / READER).write_bytes(qf.reader_meta(qf.reader_slot(segment, record.offset + 64, 8)))
    with tw.open_subscriber(directory, "x") as reader:
        assert reader.position == (segment, record.offset)
        assert reader.committed == (segment, record.offset)
        assert reader.next().seq == record.seq
        drain(reader)


def test_a_missing_segment_of_a_reader_is_reported_with_the_existing_ones(original, tmp):
    directory = original.write(tmp / "q")
    (directory / SEALED).unlink()
    (directory / READER).write_bytes(qf.reader_meta(qf.reader_slot(0, 128, 8)))
    with pytest.raises(tw.SegmentMissing) as info:
        tw.open_subscriber(directory, "x")
    first = qf.parse_segment(directory / "000000001.q")[1][0].seq
    assert info.value.committed == (0, 128)
    assert info.value.first_available_seq == first
    assert info.value.hint


# ---- cut, stretched, emptied --------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_truncated_to_any_length_is_refused_or_repaired(original, tmp, name):
    data = original.files[name]
    for n in lengths(name, data):
        wiped = name == ACTIVE and n == 0
        run_all(
            original,
            tmp,
            name,
            [(f"cut to {n}", data[:n])],
            must_open=name in HINTS,
            wiped=wiped,
        )


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_bytes_after_its_end_is_refused_or_harmless(original, tmp, name):
    data = original.files[name]
    tails = [fill * n for fill in (b"\0", b"\xff") for n in (1, 16, 64, 4096)]
    cases = ((f"{len(tail)} of {tail[:1]!r}", data + tail) for tail in tails)
    run_all(original, tmp, name, cases, must_open=name in HINTS)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_zeros_is_refused_or_repaired(original, tmp, name):
    data = bytes(len(original.files[name]))
    run_all(original, tmp, name, [("zeros", data)], must_open=name in HINTS, wiped=name == ACTIVE)


def test_a_segment_with_a_zeroed_header_is_repaired_by_a_writer(original, tmp):
    data = bytes(64) + original.files[ACTIVE][64:]
    log, _, writer = damaged_in(original, tmp, ACTIVE, data)
    assert isinstance(log, tw.CorruptMetadata)
    assert writer == original.records
