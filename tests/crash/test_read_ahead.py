"""Pages that cannot be mapped far ahead of a reader: the records before them are still read."""

import os
import time

import pytest

import tapewire as tw

SEGMENT_BYTES = 64 << 20
CUT_BYTES = 40 << 20


@pytest.mark.parametrize("batch", [True, False], ids=["read_batch", "next"])
def test_records_before_the_end_of_a_file_cut_short_are_read(tmp, batch):
    with tw.open_publisher(tmp / "q", segment_bytes=SEGMENT_BYTES, preallocate=False) as writer:
        while writer.metrics()["bytes_written"] < SEGMENT_BYTES - (1 << 20):
            writer.append_batch(1, [bytes(960)] * 1000)
    with tw.open_log(tmp / "q") as reader:
        assert reader.next() is not None
        os.truncate(tmp / "q" / "000000000.q", CUT_BYTES)
        seen = 1
        expected = (CUT_BYTES - 64) // 1024 - 4  # records of the last page may be gone
        while seen < expected:
            if batch:
                seen += len(reader.read_batch(min(1000, expected - seen)))
            else:
                assert reader.next().seq == seen
                seen += 1
            if seen % 4000 == 0:
                time.sleep(0.01)  # pages are requested up to 8 MiB ahead: wait for that
        with pytest.raises(tw.MappingLost):
            list(reader)
