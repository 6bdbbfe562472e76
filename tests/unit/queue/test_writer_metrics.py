"""metrics() and stats.meta: the same counters in the documented order."""

import re
from pathlib import Path

from tests.support import queue_files
from tests.support.queue_format import CONSTANTS, unpack
from tests.support.records import fill_segments

NATIVE = Path(__file__).resolve().parents[3] / "native/include/tapewire/format/stats.hpp"

DOCUMENTED = {"records", "bytes_written", "rolls", "prealloc_misses", "prealloc_errors"} | {
    "seal_errors",
    "retention_errors",
    "segments_retired",
    "readers_ignored",
}


def native_names():
    body = re.search(r"kStatNames = \{(.*?)\};", NATIVE.read_text(), re.DOTALL)[1]
    return re.findall(r'"(\w+)"', body)


def test_metrics_are_in_the_order_of_the_file_format(publisher):
    assert list(publisher().metrics()) == native_names()


def test_the_native_names_are_those_of_the_native_counters():
    body = re.search(r"enum class Stat[^{]*\{(.*?)\};", NATIVE.read_text(), re.DOTALL)[1]
    members = [name.strip() for name in body.split(",") if name.strip()]
    assert [*native_names(), "count_"] == members


def test_the_documented_counters_exist(publisher):
    assert set(publisher().metrics()) >= DOCUMENTED


def test_a_new_queue_counts_from_zero(publisher):
    metrics = publisher().metrics()
    assert metrics.pop("segments") == 1
    assert set(metrics.values()) == {0}


def test_appends_are_counted(publisher):
    writer = publisher()
    writer.append(1, b"x")
    writer.append_batch(1, [bytes(64), bytes(65)])
    with writer.reserve(1, 10):
        pass
    writer.reserve(1, 10).abort()
    metrics = writer.metrics()
    assert metrics["records"] == metrics["next_seq"] == 4
    assert metrics["bytes_written"] == 128 + 128 + 192 + 128


def test_counters_are_of_this_writer_and_numbers_of_the_queue(publisher):
    with publisher() as writer:
        writer.append_batch(1, [b"x"] * 5)
    metrics = publisher().metrics()
    assert (metrics["records"], metrics["bytes_written"], metrics["next_seq"]) == (0, 0, 5)


def test_stats_meta_agrees_with_metrics_within_a_heartbeat(publisher, queue, eventually):
    writer = publisher()
    fill_segments(writer, 3)

    def agrees():
        return queue_files.stats(queue) == list(writer.metrics().values())

    eventually(agrees)
    writer.append(1, b"one more")
    eventually(agrees)


def test_stats_meta_keeps_the_last_counters_of_a_closed_writer(publisher, queue):
    writer = publisher()
    for _ in range(5):
        writer.append(1, b"x")
    writer.close()
    assert dict(zip(native_names(), queue_files.stats(queue), strict=True))["records"] == 5


def test_stats_meta_has_its_header(publisher, queue, eventually):
    publisher()
    path = queue / "stats.meta"
    eventually(lambda: any(path.read_bytes()))
    header = unpack("StatsHeader", path.read_bytes())
    assert header["magic"] == CONSTANTS["kStatsMagic"]
    assert header["version"] == 1
    assert header["count"] == len(native_names())
