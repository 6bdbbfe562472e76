"""What a queue is created with, what it keeps, and what each option of open_publisher does."""

import logging

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.queue_format import SPARSE, segment_ids, segment_path
from tests.support.records import fill_segments, stored_payloads

MIB = 1 << 20


@pytest.mark.parametrize("size", [8192, 12288, 65536])
def test_every_segment_file_has_exactly_segment_bytes(publisher, queue, size):
    writer = publisher(segment_bytes=size)
    for _ in range(40):
        writer.append(1, bytes(2000))
    writer.close()
    assert len(segment_ids(queue)) > 1
    for number in segment_ids(queue):
        assert segment_path(queue, number).stat().st_size == size
    assert queue_files.control(queue)["segment_size"] == size


@pytest.mark.parametrize("size", [128, 4096, 8191, 8193, 10000, (2 << 30) + 4096, 4 << 30])
def test_segment_bytes_of_a_new_queue_is_a_multiple_of_4096_from_8_kib_to_2_gib(queue, size):
    with pytest.raises(tw.InvalidOption, match=f"segment_bytes={size}"):
        tw.open_publisher(queue, segment_bytes=size)


def test_a_refused_creation_leaves_no_queue(queue):
    with pytest.raises(tw.InvalidOption):
        tw.open_publisher(queue, segment_bytes=10000)
    with tw.open_publisher(queue, segment_bytes=8192) as writer:
        assert writer.segment_bytes == 8192


def test_the_default_of_segment_bytes_is_128_mib(queue):
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.segment_bytes == 128 * MIB
        assert (writer.first_seq, writer.sparse) == (0, False)


def test_an_existing_queue_keeps_its_own_geometry(queue):
    with tw.open_publisher(queue, segment_bytes=12288, first_seq=5, sparse=True) as writer:
        writer.append(1, b"x")
    with tw.open_publisher(queue) as writer:
        assert (writer.segment_bytes, writer.first_seq, writer.sparse) == (12288, 5, True)
        assert writer.next_seq == 6


@pytest.mark.parametrize(
    ("option", "created", "given"),
    [
        ("segment_bytes", 8192, 16384),
        ("first_seq", 5, 6),
        ("first_seq", 0, 1),
        ("sparse", False, True),
        ("sparse", True, False),
    ],
)
def test_reopening_with_another_value_is_refused_by_both(queue, option, created, given):
    first = {"segment_bytes": 8192, option: created}
    with tw.open_publisher(queue, **first) as writer:
        writer.append(1, b"x")
    with pytest.raises(ValueError, match=f"{option}={given}.*{option}={created}") as caught:
        tw.open_publisher(queue, **{option: given})
    assert isinstance(caught.value, tw.InvalidOption)
    assert caught.value.hint
    with tw.open_publisher(queue, **first) as writer:  # the same value; the lock is free again
        assert writer.append(1, b"y") == writer.first_seq + 1


@pytest.mark.parametrize("sparse", [None, True, False])
def test_sparse_of_a_queue_without_records_is_kept(queue, sparse):
    tw.open_publisher(queue, segment_bytes=8192, sparse=sparse).close()
    with tw.open_publisher(queue) as writer:
        assert writer.sparse is bool(sparse)


def test_every_segment_of_a_sparse_queue_has_the_flag(publisher, queue):
    writer = publisher(sparse=True)
    fill_segments(writer, 2)
    writer.close()
    for number in segment_ids(queue):
        assert queue_files.segment_flags(queue, number) & SPARSE


def test_options_override_config(queue):
    config = tw.WriterConfig(segment_bytes=8192, checksum=False)
    with tw.open_publisher(queue, config, checksum=True) as writer:
        assert writer.config == config.replace(checksum=True)


def test_an_unknown_option_is_refused_by_name(queue):
    with pytest.raises(TypeError, match="segment_size"):
        tw.open_publisher(queue, segment_size=8192)
    with pytest.raises(tw.InvalidOption, match="config"):
        tw.open_publisher(queue, {"segment_bytes": 8192})
    assert not queue.exists()


@pytest.mark.parametrize("checksum", [True, False])
def test_checksum_false_omits_the_crc_and_sets_the_flag(publisher, queue, checksum):
    publisher(checksum=checksum).append(1, b"abc", flags=0x1200)
    (record,) = queue_files.records(queue)
    assert record.flags == 0x1200 | (0 if checksum else 1)
    assert stored_payloads(queue) == [b"abc"]


def test_one_queue_may_have_records_with_and_without_checksum(publisher, queue):
    for checksum in (True, False, True):
        with publisher(checksum=checksum) as writer:
            writer.append(1, b"%r" % checksum)
    assert [record.flags & 1 for record in queue_files.records(queue)] == [0, 1, 0]
    assert stored_payloads(queue) == [b"True", b"False", b"True"]


def test_a_damaged_payload_without_checksum_is_shown_and_with_checksum_raises(publisher, queue):
    for checksum, outcome in ((False, b"Zbc"), (True, None)):
        writer = publisher(checksum=checksum)
        writer.append(1, b"abc")
        writer.close()
        path = segment_path(queue, 0)
        data = bytearray(path.read_bytes())
        data[data.rindex(b"abc")] = ord("Z")
        path.write_bytes(data)
        with tw.open_log(queue) as reader:
            got = reader.next()
            assert bytes(got.payload) == b"Zbc"
            if outcome is None:
                with pytest.raises(tw.ChecksumMismatch, match="seq=1"):
                    reader.next()


def test_opening_creates_private_files_and_directories(publisher, subscriber, queue):
    writer = publisher()
    fill_segments(writer, 2)
    subscriber()
    writer.flush_sync()
    writer.close()
    directories = [queue, queue / "readers"]
    files = [path for path in queue.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"control.meta", "writer.lock", "index.meta", "stats.meta", "r.meta"} <= names
    assert {"000000000.q", "000000000.idx"} <= names
    assert {path.name: oct(path.stat().st_mode & 0o7777) for path in directories} == {
        "q": "0o700",
        "readers": "0o700",
    }
    assert {path.name for path in files if path.stat().st_mode & 0o7777 != 0o600} == set()


def test_flush_every_syncs_automatically(publisher, eventually):
    writer = publisher(flush=tw.FlushEvery(records=10))
    assert writer.metrics()["flushes"] == 0
    for _ in range(10):
        writer.append(1, b"x")
    eventually(lambda: writer.metrics()["flushes"] > 0)


def test_flush_every_syncs_a_single_record_after_its_seconds(publisher, eventually):
    writer = publisher(flush=tw.FlushEvery(seconds=0.01))
    writer.append(1, b"x")
    eventually(lambda: writer.metrics()["flushes"] > 0)


def test_presets_open_a_queue(queue, tmp):
    with tw.open_publisher(queue, tw.WriterConfig.live(segment_bytes=8192)) as writer:
        fill_segments(writer, 1)
    with tw.open_publisher(tmp / "a", tw.WriterConfig.archive(segment_bytes=8192)) as writer:
        fill_segments(writer, 3)
        assert writer.metrics()["seals"] == 3
    assert segment_ids(tmp / "a") == [0, 1, 2, 3]


def test_a_clean_opening_logs_nothing(publisher, queue, caplog):
    with caplog.at_level(logging.INFO, "tapewire"):
        writer = publisher()
        fill_segments(writer, 3)
        writer.close()
        publisher().close()
    assert caplog.records == []
