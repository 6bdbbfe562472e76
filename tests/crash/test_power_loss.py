"""What a loss of power can leave: pages and files of different ages, put together by hand."""

import re
import shutil

import pytest

import tapewire as tw
from tests.crash.scripts import calls_between_markers


def test_a_reader_ahead_of_the_recovered_tail_stands_at_the_tail(tmp):
    # Its own page was written back at (1, 64); the tail and the SEALED of segment 0 were not.
    queue, kept = tmp / "q", tmp / "kept"
    with (
        tw.open_publisher(queue, segment_bytes=8192) as writer,
        tw.open_subscriber(queue, "ahead") as reader,
    ):
        for _ in range(10):
            writer.append(1, bytes(100))
        writer.flush_sync()
        kept.mkdir()
        for name in ("000000000.q", "index.meta"):
            shutil.copy(queue / name, kept / name)
        for _ in range(30):
            writer.append(1, bytes(100))
        writer.reserve(1, 4000).abort()  # rolls; segment 1 holds no record yet
        assert len(list(reader)) == 40
        assert reader.next() is None
        reader.commit()
        assert reader.position == (1, 64)
        shutil.copytree(queue, tmp / "after")
    after = tmp / "after"
    for name in ("000000000.q", "index.meta"):
        shutil.copy(kept / name, after / name)
    for path in after.glob("*.idx"):
        path.unlink()

    with tw.open_subscriber(after, "ahead") as reader, tw.open_publisher(after) as writer:
        assert writer.next_seq == 10
        for _ in range(60):  # through the rest of segment 0 into the next
            writer.append(2, bytes(100))
        assert [record.seq for record in reader] == list(range(10, 70))


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_a_flush_covers_what_a_killed_predecessor_left_unsynced(tmp, checkpoint):
    # The image of a live writer is what a kill leaves; its sealed segments may not be synced.
    queue = tmp / "q"
    with tw.open_publisher(queue, segment_bytes=8192) as writer:
        writer.flush_sync()
        first = (queue / "index.meta").read_bytes()
        for _ in range(200):
            writer.append(1, bytes(100))
        shutil.copytree(queue, tmp / "image", ignore=shutil.ignore_patterns("*.tmp"))
    if checkpoint == "kept":
        (tmp / "image" / "index.meta").write_bytes(first)
    else:
        (tmp / "image" / "index.meta").unlink()
    calls = calls_between_markers(
        """
        import sys, tapewire as tw
        with tw.open_publisher(sys.argv[1], preallocate=False) as writer:
            os.write(mark, b"BEGIN")
            writer.flush_sync()
            os.write(mark, b"END")
        """,
        tmp / "image",
        log=tmp / "trace",
        trace="openat,fdatasync",
    )
    synced = set()
    opened = ""
    for call in calls:
        if found := re.search(r'openat\(.*"[^"]*/(\d{9})\.q"', call):
            opened = found[1]
        elif call.startswith("fdatasync") and opened:
            synced.add(int(opened))
            opened = ""
    assert synced >= {0, 1, 2, 3}  # sealed by the predecessor, 42 records each
