"""Where a loss is marked in the log of a book."""

from tapewire import ingest, replay
from tests.support.captures import book_logs


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
