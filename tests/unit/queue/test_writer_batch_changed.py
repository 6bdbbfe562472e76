"""A batch whose columns change while it is appended: each value is read once and checked then."""

import threading

import numpy as np
import pytest

import tapewire as tw
from tapewire.queue import rows

PAD = 0xFFFF
ROWS = 1_000_000

# A column: its argument, dtype, valid values of n rows, an invalid value, and the reason given.
COLUMNS = {
    "type ids": ("type_id", "u2", np.ones, PAD, "type_id must be below 0xFFFF"),
    "flags": ("flags", "u2", lambda n: np.full(n, 0x0100), 0x0001, "low 8 bits"),
    "numbers": ("seqs", "u8", np.arange, 0, "rise strictly"),
    "times": ("timestamps_ns", "u8", np.arange, 2**63, "timestamps_ns must be"),
}


@pytest.fixture(params=COLUMNS)
def column(request):
    return COLUMNS[request.param]


@pytest.fixture
def after_the_check(monkeypatch):
    """`after_the_check(action)`: runs it once the arguments of a batch are found valid."""

    def register(action):
        def gather(*args):
            gathered = check(*args)
            action()
            return gathered

        check = rows.gather
        monkeypatch.setattr(rows, "gather", gather)

    return register


def append(writer, option, values, payloads):
    options = {"type_id": 1, option: values}
    return writer.append_batch(options.pop("type_id"), payloads, **options)


def check_log(queue, count):
    """As many records as were acknowledged; no PAD, no system flag, rising numbers."""
    found, last = 0, -1
    with tw.open_log(queue) as reader:
        while len(batch := reader.read_batch(100_000)):
            found += len(batch)
            assert (batch.type_id != PAD).all()
            assert not (batch.flags & 0x00FF).any()
            seqs = np.asarray(batch.seq, "i8")
            assert seqs[0] > last
            assert (np.diff(seqs) > 0).all()
            last = int(seqs[-1])
    assert found == count


@pytest.mark.parametrize("row", [1, 40, 99])
def test_a_row_changed_after_the_check_is_refused_when_it_is_appended(
    queue, publisher, after_the_check, column, row
):
    option, dtype, valid, invalid, reason = column
    writer = publisher(sparse=True)
    values = valid(100).astype(dtype)
    after_the_check(lambda: values.__setitem__(row, invalid))
    with pytest.raises(tw.ConcurrentUse, match=reason) as caught:
        append(writer, option, values, [b"x"] * 100)
    assert caught.value.appended == row
    assert writer.next_seq == row
    check_log(queue, row)
    assert writer.append(1, b"the writer goes on") == row


def test_a_million_rows_changed_all_the_time_leave_nothing_invalid_in_the_log(
    queue, publisher, after_the_check, column
):
    option, dtype, valid, invalid, reason = column
    writer = publisher(segment_bytes=256 << 20, sparse=True)
    values = valid(ROWS).astype(dtype)
    later = values[ROWS // 2 :]  # so that something is appended in any case
    good = later.copy()
    checked, over = threading.Event(), threading.Event()

    def change():
        checked.wait()
        while not over.is_set():
            later[:] = invalid
            later[:] = good

    after_the_check(checked.set)
    thread = threading.Thread(target=change)
    thread.start()
    refused = None
    try:
        append(writer, option, values, np.zeros((ROWS, 8), "u1"))
    except tw.ConcurrentUse as error:
        refused = error
    finally:
        checked.set()
        over.set()
        thread.join()
    appended = ROWS if refused is None else refused.appended
    assert refused is None or reason in str(refused)
    assert appended >= ROWS // 2
    assert writer.metrics()["records"] == appended
    check_log(queue, appended)
