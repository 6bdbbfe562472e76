"""Messages through a queue: appended, decoded singly and as columns, declared in types.json."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

import tapewire as tw
from tapewire import log, protocol
from tapewire.protocol import json_file, types_file


def appended(queue, *messages):
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        for message in messages:
            writer.append_message(message)
    with tw.open_log(queue) as reader:
        return reader.read_batch()


def test_a_record_decodes_to_the_message_that_was_appended(queue, fill):
    messages = [fill(n, -n, n, 1, f"V{n}") for n in range(3)]
    batch = appended(queue, *messages)
    assert [record.decode() for record in batch] == messages
    assert [fill.decode(record) for record in batch] == messages
    assert batch.type_id.tolist() == [0x2001] * 3


@pytest.mark.parametrize("what", [3, b"bytes", None])
def test_an_object_that_is_not_a_message_is_refused(queue, what):
    with (
        tw.open_publisher(queue, segment_bytes=1 << 20) as writer,
        pytest.raises(tw.InvalidMessage, match="not a message"),
    ):
        writer.append_message(what)


def test_time_flags_and_seq_are_passed_to_append(tmp, fill):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20, sparse=True) as writer:
        message = fill(1, 2, 3, 1, "")
        assert writer.append_message(message, timestamp_ns=77, flags=0x0500, seq=9) == 9
    with tw.open_log(tmp / "q") as reader:
        record = reader.next()
    assert (record.seq, record.timestamp_ns, record.flags) == (9, 77, 0x0500)


def test_a_batch_decodes_to_columns_over_the_map(queue, fill):
    batch = appended(queue, *(fill(n, 10 * n, 1, 2, "XNAS") for n in range(100)))
    rows = fill.decode(batch)
    assert rows.dtype == fill.dtype
    assert rows["price"].tolist() == list(range(0, 1000, 10))
    assert not rows.flags.owndata
    assert not rows.flags.writeable
    assert rows.strides == (128,)


def test_an_empty_batch_decodes_to_no_rows(queue, fill):
    assert len(fill.decode(appended(queue))) == 0


def test_rows_of_the_dtype_are_records_of_the_message(writer, queue, fill):
    rows = np.zeros(5, fill.dtype)
    rows["qty"], rows["venue"] = np.arange(5), b"XLON"
    protocol.declare(writer, fill)
    writer.append_batch(fill.type_id, rows)
    with tw.open_log(queue) as reader:
        assert [record.decode().qty for record in reader] == [0, 1, 2, 3, 4]


def test_a_record_of_another_type_is_refused(writer, queue, fill):
    writer.append(0x2002, bytes(fill(1, 2, 3, 1, "")))
    with tw.open_log(queue) as reader:
        batch = reader.read_batch()
    for source in (batch, batch[0]):
        with pytest.raises(tw.InvalidMessage, match="type_id=0x2002, Fill is 0x2001"):
            fill.decode(source)


def test_bytes_that_are_not_text_are_a_damaged_record(writer, queue, fill):
    payload = bytearray(bytes(fill(1, 2, 3, 1, "")))
    payload[25:27] = b"\xff\xfe"
    writer.append(0x2001, bytes(payload))
    with tw.open_log(queue) as reader:
        record = reader.next()
    for decode in (record.decode, lambda: fill.decode(record)):
        with pytest.raises(tw.CorruptRecord, match="a char field of Fill is not UTF-8"):
            decode()


def test_the_first_message_of_a_class_writes_types_json(writer, queue, fill):
    assert not (queue / "types.json").exists()
    writer.append_message(fill(1, 2, 3, 1, ""))
    entry = json.loads((queue / "types.json").read_bytes())["types"][0]
    assert entry["name"] == "Fill"
    assert entry["size"] == 40
    assert entry["fields"][4] == {"name": "venue", "type": "char", "offset": 25, "count": 8}
    assert (queue / "types.json").stat().st_mode & 0o777 == 0o600
    assert not (queue / "types.json.tmp").exists()


def test_later_messages_do_not_read_types_json(writer, queue, fill):
    writer.append_message(fill(1, 2, 3, 1, ""))
    (queue / "types.json").write_text("an unused text")
    assert writer.append_message(fill(1, 2, 3, 1, "")) == 1
    assert (queue / "types.json").read_text() == "an unused text"


def test_a_second_writer_does_not_change_a_complete_types_json(queue, fill):
    appended(queue, fill(1, 2, 3, 1, ""))
    before = (queue / "types.json").stat()
    appended(queue, fill(1, 2, 3, 1, ""))
    after = (queue / "types.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_temporary_file_of_a_killed_writer_is_replaced(writer, queue, fill):
    (queue / "types.json.tmp").write_text('{"format": "tapew')
    writer.append_message(fill(1, 2, 3, 1, ""))
    assert [layout.name for layout in types_file.read(queue)] == ["Fill"]


def test_a_damaged_types_json_raises_before_the_message_is_appended(writer, queue, fill):
    (queue / "types.json").write_text("{")
    with pytest.raises(tw.CorruptMetadata, match=r"types\.json\]; restore the file, or remove it"):
        writer.append_message(fill(1, 2, 3, 1, ""))
    assert writer.next_seq == 0
    (queue / "types.json").unlink()
    assert writer.append_message(fill(1, 2, 3, 1, "")) == 0


def test_threads_that_declare_at_once_lose_nothing(writer, queue):
    classes = []
    for n in range(16):
        made = type(f"M{n}", (), {"__annotations__": {"a": tw.u64}})
        classes.append(tw.message(0x2100 + n)(made))
    start = threading.Barrier(4)

    def work(part):
        start.wait()
        for cls in part:
            writer.append_message(cls(1))

    threads = [threading.Thread(target=work, args=(classes[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [layout.name for layout in types_file.read(queue)] == [f"M{n}" for n in range(16)]


def test_waiting_for_a_lock_that_is_never_released_ends_with_an_error(
    writer, queue, fill, monkeypatch
):
    monkeypatch.setattr(json_file, "LOCK_SECONDS", 0.01)
    with (
        json_file.locked_directory(str(queue), "types.json"),
        pytest.raises(tw.ConcurrentUse, match="signal handlers"),
    ):
        writer.append_message(fill(1, 2, 3, 1, ""))
    assert writer.append_message(fill(1, 2, 3, 1, "")) == 0


FORKED = """
import os, sys, warnings
import tapewire as tw
warnings.simplefilter("ignore")  # of a fork beside threads, which is what is tested

@tw.message(0x2001)
class Tick:
    price: tw.i64

with tw.open_publisher(sys.argv[1], segment_bytes=1 << 20) as writer:
    child = os.fork()
    if child == 0:
        try:
            writer.append_message(Tick(1))
        except tw.ForkedHandle:
            os._exit(7)
        finally:
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_of_the_writer_does_not_write_types_json(queue):
    program = [sys.executable, "-c", FORKED, str(queue)]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"7\n"
    assert not (queue / "types.json").exists()


def test_a_closed_writer_refuses_a_message(queue, fill):
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        pass
    with pytest.raises(tw.ClosedHandle):
        writer.append_message(fill(1, 2, 3, 1, ""))
    assert not (queue / "types.json").exists()


def test_a_message_that_was_unregistered_is_unknown(queue, fill):
    batch = appended(queue, fill(1, 2, 3, 1, ""))
    protocol.forget(fill)
    with pytest.raises(log.UnknownMessage):
        batch[0].decode()
