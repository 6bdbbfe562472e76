"""Record: its fields, its payload in place, and how long that lives."""

import gc
import re

import numpy as np
import pytest

from tests.conformance.kinds import needs
from tests.support.entries import BASE_NS

TICK = np.dtype([("price", "<i8"), ("size", "<i4"), ("side", "u1")])


def address(buffer):
    return np.frombuffer(buffer, "u1").ctypes.data


@needs("seq", "timestamp_ns", "type_id", "flags")
def test_a_record_has_the_fields_it_was_appended_with(log, read):
    log.append(b"abc", timestamp_ns=BASE_NS + 7, type_id=0x1001, flags=0x2A00)
    record = read().next()
    assert record.seq == log.model[0].seq
    assert record.timestamp_ns == BASE_NS + 7
    assert record.type_id == 0x1001
    assert record.flags == 0x2A00
    assert bytes(record.payload) == b"abc"


@needs("timestamp_ns")
@pytest.mark.parametrize("time", [0, 1, 2**63 - 1])
def test_times_from_the_epoch_to_the_end_of_int64_are_read_back(log, read, time):
    log.append(timestamp_ns=time)
    assert read().next().timestamp_ns == time


@needs("type_id", "flags")
@pytest.mark.parametrize(("type_id", "flags"), [(0, 0), (0xFFFE, 0xFF00)])
def test_the_lowest_and_highest_type_and_flags_are_read_back(log, read, type_id, flags):
    log.append(type_id=type_id, flags=flags)
    record = read().next()
    assert (record.type_id, record.flags) == (type_id, flags)


@needs()
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 127, 128, 1000, 4096])
def test_payloads_of_every_size_are_read_back(log, read, size):
    payload = np.random.default_rng(size).bytes(size)
    log.append(payload)
    log.append(b"after")
    reader = read()
    assert bytes(reader.next().payload) == payload
    assert bytes(reader.next().payload) == b"after"


@needs("empty_payload")
def test_a_record_without_bytes_is_a_record(log, read):
    log.append(b"")
    log.append(b"x")
    log.append(b"")
    got = [(len(record), bytes(record.payload)) for record in read()]
    assert got == [(0, b""), (1, b"x"), (0, b"")]
    assert len(read().next().view("u1")) == 0


@needs()
def test_the_payload_is_a_read_only_memoryview_of_bytes(log, read):
    log.append(b"abcd")
    payload = read().next().payload
    assert isinstance(payload, memoryview)
    assert (payload.readonly, payload.format, payload.ndim) == (True, "B", 1)
    assert (payload.nbytes, payload.c_contiguous) == (4, True)
    with pytest.raises(TypeError):
        payload[0] = 0


@needs()
def test_every_payload_of_one_record_is_the_same_memory(log, read):
    log.append(b"abcd" * 20)
    record = read().next()
    assert address(record.payload) == address(record.payload) == address(record)


@needs("mapped")
def test_the_payload_is_in_a_mapped_file_of_the_log(log, read):
    log.append(b"abcd" * 20)
    record = read().next()
    at = address(record.payload)
    pattern = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) .* (/\S+)$")
    with open("/proc/self/maps") as maps:
        found = [pattern.match(line.rstrip("\n")) for line in maps]
    holding = [m for m in found if m and int(m[1], 16) <= at < int(m[2], 16)]
    assert [str(log.where) in m[4] for m in holding] == [True]
    assert holding[0][3].startswith("r--s")  # the kernel refuses a write, too


@needs()
def test_view_is_a_read_only_numpy_array_in_place(log, read):
    row = np.array([(100_25, 7, 1)], TICK)
    log.append(row.tobytes())
    record = read().next()
    view = record.view(TICK)
    assert view.dtype == TICK
    assert view.tolist() == row.tolist()
    assert not view.flags.writeable
    assert view.ctypes.data == address(record.payload)


@needs()
def test_view_refuses_a_type_that_does_not_divide_the_payload(log, read):
    log.append(b"abc")
    with pytest.raises(ValueError, match="multiple"):
        read().next().view("<u2")


@needs()
def test_records_compare_by_their_fields_and_bytes(log, read):
    log.append(b"same")
    log.append(b"other")
    one, two = read(), read()
    first = one.next()
    assert first == two.next()
    assert first != one.next()
    assert first != "something else"


@needs()
def test_repr_names_the_fields(log, read):
    log.append(b"hello", type_id=0x1001)
    text = repr(read().next())
    assert "seq=0" in text
    assert "type_id=0x1001" in text
    assert "hello" in text


@needs()
def test_a_payload_outlives_its_record_and_its_reader(kind, log):
    log.fill(200)
    with kind.open_reader(log.where) as reader:
        held = [record.payload for record in reader]
    del reader
    gc.collect()
    assert [bytes(payload) for payload in held] == [e.payload for e in log.model]


@needs("mapped")
def test_a_payload_outlives_the_files_of_the_log(kind, log):
    log.fill(200)
    log.close()
    with kind.open_reader(log.where) as reader:
        held = [record.payload for record in reader]
    with kind.open_reader(log.where) as reader:
        batch = reader.read_batch()
    kind.discard(log.where)
    gc.collect()
    expected = [e.payload for e in log.model]
    assert [bytes(payload) for payload in held] == expected
    assert [bytes(batch.payload(i)) for i in range(len(batch))] == expected


@needs("mapped")
def test_a_mapped_file_is_released_with_the_last_view_of_it(kind, log):
    log.fill(200)
    with kind.open_reader(log.where) as reader:
        held = [record.payload for record in reader]
    log.close()

    def mapped():
        with open("/proc/self/maps") as maps:
            return sum(str(log.where) in line for line in maps)

    assert mapped() > 0
    held.clear()
    gc.collect()
    assert mapped() == 0
