"""On a real standalone cluster: a master and two workers, tasks in processes that are not ours."""

import hashlib
import os
import signal
import socket
from types import SimpleNamespace

import pytest

import tapewire as tw
from conftest import wait_until
from tests.spark.cluster import Cluster, Driver, drive

ROWS = 20_000
pytestmark = pytest.mark.timeout(600)  # five JVMs on a busy machine

RECORDS = """
import hashlib, os, time, uuid
from pathlib import Path
import tapewire as tw

log, marks, go, live = args

def held(batches):
    # Under way with rows in hand, and going no further until the test has done its worst.
    for i, batch in enumerate(batches):
        if i == 0:
            Path(marks, str(uuid.uuid4())).touch()
            while not Path(go).exists():
                time.sleep(0.01)
        yield batch

rows = spark.read.format("tapewire").option("partitions", 4).load(log)
rows = rows.mapInArrow(held, rows.schema).collect()
digest = hashlib.sha256()
for row in sorted(rows, key=lambda row: row.seq):
    digest.update(b"%d %d %d " % (row.seq, row.timestamp_ns, row.type_id) + row.payload)

def read_live(master, **options):
    known = tws.source.source_for(spark)
    known.master = master
    spark.dataSource.register(known)
    try:
        return spark.read.format("tapewire").options(**options).load(live).count()
    except Exception as error:
        return str(error)

with tw.open_publisher(live, segment_bytes=1 << 20) as writer:
    writer.append(1, b"x")
    answer({
        "digest": digest.hexdigest(),
        "count": len(rows),
        "live here": read_live(master),
        "live elsewhere": read_live("spark://10.0.0.5:7077"),
        "live shared": read_live("spark://10.0.0.5:7077", shared="true"),
    })
"""


def write(path):
    """Several segments; what a reader reads of them, as one digest."""
    with tw.open_publisher(path, segment_bytes=1 << 18) as writer:
        for i in range(ROWS):
            writer.append(1 + i % 3, b"%d" % i * (1 + i % 7))
    digest = hashlib.sha256()
    with tw.open_log(path) as reader:
        for record in reader:
            head = b"%d %d %d " % (record.seq, record.timestamp_ns, record.type_id)
            digest.update(head + bytes(record.payload))
    return digest.hexdigest()


@pytest.fixture(scope="module")
def cluster(module_tmp):
    folder = module_tmp / "cluster"
    folder.mkdir()
    with Cluster(folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster, module_tmp):
    """One program for all: each must wait for a JVM and two executors."""
    log, marks, go = (module_tmp / name for name in ("log", "marks", "go"))
    expected = write(log)
    marks.mkdir()
    with Driver(RECORDS, cluster.master, log, marks, go, module_tmp / "live") as driver:
        wait_until(lambda: len(list(marks.iterdir())) >= 2 or driver.ended, 150)
        killed = cluster.executors()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: set(cluster.executors()) - set(killed) or driver.ended, 150)
        go.touch()
        told = driver.answer()
    attempts = len(list(marks.iterdir()))
    return SimpleNamespace(told=told, expected=expected, killed=killed, attempts=attempts)


def test_records_are_what_a_reader_reads_though_all_executors_were_killed(run):
    assert len(run.killed) == 2
    assert run.attempts == 4 + 2  # both tasks that were under way were done again
    assert run.told["count"] == ROWS
    assert run.told["digest"] == run.expected


def test_a_live_queue_is_read_where_all_workers_are_on_this_machine(run):
    assert run.told["live here"] == 1


def test_a_live_queue_is_refused_with_the_remedy_where_workers_may_be_elsewhere(run):
    said = run.told["live elsewhere"]
    assert "a live queue is read where it is written" in said
    assert "master=spark://10.0.0.5:7077" in said
    assert '.option("shared", "true")' in said


def test_a_live_queue_is_read_anywhere_when_its_files_are_shared(run):
    assert run.told["live shared"] == 1


def other_address():
    """One of this machine that is not loopback, or None; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_master_on_another_address_than_loopback_does_not_read_a_live_queue(tmp):
    host = other_address()
    if host is None:
        pytest.skip("needs a network address that is not loopback")
    code = """
    def attempt(**options):
        try:
            return spark.read.format("tapewire").options(**options).load(args[0]).count()
        except Exception as error:
            return str(error)
    answer([attempt(), attempt(shared="true")])
    """
    folder = tmp / "cluster"
    folder.mkdir()
    with (
        Cluster(folder, workers=1, host=host) as cluster,
        tw.open_publisher(tmp / "live", segment_bytes=1 << 20) as writer,
    ):
        writer.append(1, b"x")
        refused, shared = drive(code, cluster.master, tmp / "live")
    assert f"master=spark://{host}:" in refused
    assert shared == 1
