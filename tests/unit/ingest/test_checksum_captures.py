"""Books of OKX and Bitget whose checksum does not match: untrusted from that very message on."""

import json
import zlib

import pytest

from tapewire import replay
from tests.support.captures import book_logs

AT_S = 1_700_006_400


def line(number, action, bids, asks, text):
    """A message whose checksum is that of `text`, the best levels."""
    crc = zlib.crc32(text.encode())
    data = {"bids": bids, "asks": asks, "ts": str(AT_S * 1000), "checksum": crc}
    arg = {"channel": "books", "instId": "A"}
    return f"{AT_S}.{number}: {json.dumps({'arg': arg, 'action': action, 'data': [data]})}".encode()


SNAPSHOT = line(0, "snapshot", [["10.0", "1"]], [["11.0", "2"]], "10.0:1:11.0:2")
ALTERED = line(1, "update", [["10.0", "7"]], [], "10.0:1:11.0:2")
NEXT = line(2, "update", [["10.5", "1"]], [], "10.5:1:11.0:2:10.0:7")


@pytest.fixture
def states(import_lines, tmp):
    """The kind of each event of the log, and whether the book is trusted after it."""

    def read(lines):
        summary, _ = import_lines("okx", lines)
        with replay.Replay(book_logs(tmp / "archive", "okx", "A")) as steps:
            return summary, [(step.record.decode().event_type, step.book.trusted) for step in steps]

    return read


def test_the_update_that_does_not_match_is_after_the_reset(states):
    summary, found = states([SNAPSHOT, ALTERED, NEXT])
    assert found == [(1, True), (3, False), (2, False), (2, False)]
    assert summary.gaps == 1


def test_a_snapshot_that_does_not_match_makes_no_book_trusted(states):
    broken = line(1, "snapshot", [["10.0", "1"]], [["11.0", "3"]], "10.0:1:11.0:2")
    summary, found = states([SNAPSHOT, broken, NEXT])
    assert found == [(1, True), (3, False), (2, False), (2, False)]
    assert list(summary.untrusted) == ["okx/A/book"]


def test_the_next_snapshot_that_matches_makes_the_book_trusted(states):
    summary, found = states([SNAPSHOT, ALTERED, SNAPSHOT])
    assert found == [(1, True), (3, False), (2, False), (1, True)]
    assert not summary.untrusted
