"""Losses are marked at their lines, in whatever order they are reported."""

import numpy as np
import pytest

from tapewire import ingest, replay
from tapewire.ingest.importer import Chunk
from tapewire.ingest.losses import Losses, Lost
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import BOOK_EVENT, BookEvent, l2_diff, l2_snapshot, loss
from tests.support.captures import book_logs

ABC = Instrument.of("example", "ABC", 0, 0)


def chunk(lines, kinds, source=0):
    make = {"s": l2_snapshot, "d": l2_diff, "l": lambda one, at: loss(one, at, "partial")}
    payloads = [make[kind](ABC, line) for line, kind in zip(lines, kinds, strict=True)]
    return Chunk("example", "ABC", "book", BOOK_EVENT, lines, payloads, lines, source)


def types(parts):
    """The types of the events of these chunks, a letter for each."""
    return "".join(
        "?sdrhl"[BookEvent.decode(bytes(payload)).event_type]
        for part in parts
        for payload in part.payloads
    )


def test_a_loss_that_is_reported_after_a_later_one_is_marked_at_its_line():
    losses = Losses()
    losses.add(0, Lost(40, None))
    losses.add(0, Lost(4, None))
    losses.add(0, Lost(20, None))
    marked = list(losses.marked(chunk([1, 2, 5, 6], "sdsd"), ABC))
    assert types(marked) == "sdlsd"
    assert types(losses.marked(chunk([7, 30, 31], "dsd"), ABC)) == "dlsd"
    assert types(losses.marked(chunk([39, 41], "ds"), ABC)) == "dls"


def test_a_loss_before_lines_that_are_written_is_marked_next():
    losses = Losses()
    losses.add(0, Lost(3, None))
    assert types(losses.marked(chunk([1, 10], "ss"), ABC)) == "sls"
    losses.add(0, Lost(20, None))
    losses.add(0, Lost(2, None))
    assert types(losses.marked(chunk([11, 21], "ss"), ABC)) == "lsls"


@pytest.mark.parametrize("sources", [1, np.array([1, 1, 1])])
def test_in_the_second_file_of_a_stream_losses_wait_for_their_lines(sources):
    losses = Losses()
    list(losses.marked(chunk([1, 2, 3], "sdd"), ABC))
    losses.add(1, Lost(9, None))
    marked = list(losses.marked(chunk([1, 2, 3], "sdd", sources), ABC))
    one_file = isinstance(sources, int)
    assert types(marked) == ("sdd" if one_file else "sddl"), "the place in merged files is unknown"
    marked = list(losses.marked(chunk([8, 10, 11], "dsd", sources), ABC))
    assert types(marked) == ("dlsd" if one_file else "dsd")


def test_what_is_lost_after_the_last_record_of_a_file_is_marked_before_the_next_file():
    losses = Losses()
    losses.add(0, Lost(9, None))
    assert types(losses.marked(chunk([1, 2], "sd"), ABC)) == "sd"
    assert types(losses.marked(chunk([1, 2], "dd", 1), ABC)) == "ldd"


def test_a_book_in_doubt_by_its_own_events_is_not_marked_again():
    losses = Losses()
    losses.add(0, Lost(9, None))
    assert types(losses.marked(chunk([1, 2], "sl"), ABC)) == "sl"
    assert list(losses.ends("rejected", lambda *_: ABC)) == []


def order(number, channel=6):
    return (
        f"//SecurityID=600519 ChannelNo={channel} BizIndex={number} MsgType=192 OrderNo={number} "
        f"Price={9000 - number}0 OrderQty=1000 OrdType=65 Side=66 TransactTime=9310000"
    )


def test_a_gap_is_marked_if_the_last_event_is_of_an_earlier_line(tmp):
    """Events are sorted by channel and number: the last one may be from the start of the file."""
    capture = tmp / "sse_20231114.log"
    rows = [order(1), order(2), order(3, channel=8), order(4), order(5)]
    capture.write_text("\n".join(rows))
    summary = ingest.run("sse", [capture], tmp / "archive", check_gaps=True)
    assert summary.gaps == 1
    with replay.Replay(book_logs(tmp / "archive", "sse", "600519")) as steps:
        events = [(step.record.decode(), step.book.trusted) for step in steps]
    assert [(event.native_seq, trusted) for event, trusted in events if event.loss is None] == [
        (1, True),
        (2, True),
        (4, False),
        (5, False),
        (3, False),
    ]
