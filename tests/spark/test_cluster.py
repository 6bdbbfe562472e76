"""A real standalone cluster: a master and two workers, with tasks in other processes."""

import contextlib
import gzip
import hashlib
import os
import signal
import socket
from types import SimpleNamespace

import pytest

import tapewire as tw
from conftest import wait_until
from tapewire import ingest, replay
from tapewire.protocol.instruments import Instruments
from tests.spark.cluster import Cluster, Driver, drive
from tests.support.captures import content_of, futures_lines
from tests.support.raw_tapes import archive_raw, clean_logs, plain_split, raw_rows

ROWS = 20_000
RAW = raw_rows(2_000)
pytestmark = pytest.mark.timeout(900)  # five JVMs on a busy machine

RECORDS = """
import hashlib, os, time, uuid
from pathlib import Path
import tapewire as tw

log, marks, go, live = args[1:]

def held(batches):
    # Holds rows and waits until the test has killed its executor.
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
    found = {
        "digest": digest.hexdigest(),
        "count": len(rows),
        "live here": read_live(master),
        "live elsewhere": read_live("spark://10.0.0.5:7077"),
        "live shared": read_live("spark://10.0.0.5:7077", shared="true"),
    }
"""
JOBS = """
from pathlib import Path
base = Path(args[0])
for name, job in {
    "import": lambda: tws.jobs.import_files(
        spark, base / "captures", base / "imported", format="binance-usdm"
    ),
    "refine": lambda: tws.jobs.refine(spark, base / "raw", base / "clean"),
    "features": lambda: tws.jobs.features(
        spark, base / "clean", base / "features", names=["mid", "ofi"], sample="100ms"
    ),
}.items():
    summary = job()
    found[name] = [summary.done, summary.failed]
answer(found)
"""


def prepare(directory):
    """The input of the jobs: files of captures, and a raw log of several symbols."""
    (directory / "captures").mkdir()
    for seed, symbol in enumerate(("AAA", "BBB")):
        lines = futures_lines(1_000, seed=seed, symbols=(symbol,))
        packed = gzip.compress(b"\n".join(lines) + b"\n")
        (directory / "captures" / f"{symbol.lower()}_20231114.gz").write_bytes(packed)
    archive_raw(directory / "raw", RAW)


def plainly_imported(directory):
    """The output of the importers for the captures, one after the other in this process."""
    for file in sorted((directory / "captures").iterdir()):
        ingest.run("binance-usdm", [file], directory / "plain")
    return content_of(directory / "plain")


def values(table):
    """Rows by symbol and time; floats as they are, to the bit."""
    rows = table.select(["symbol", "timestamp_ns", "mid", "ofi"]).to_pylist()
    return sorted(
        (row["symbol"], row["timestamp_ns"], *(repr(row[name]) for name in ("mid", "ofi")))
        for row in rows
    )


def check_jobs(directory):
    """Import, refine and features, computed in plain Python."""
    import pyarrow.dataset as ds

    assert content_of(directory / "imported") == plainly_imported(directory)
    assert clean_logs(directory / "clean") == plain_split(RAW)
    made = ds.dataset(directory / "features", partitioning="hive", exclude_invalid_files=True)
    known = Instruments.load(directory / "clean")
    plain = []
    for one in known:
        logs = sorted((directory / "clean" / "v1" / one.venue / one.symbol).glob("*/*"))
        named = {f"{log.parent.name}/{log.name}": log for log in logs}
        plain += values(replay.features(named, ["mid", "ofi"], "100ms", symbols=[one]))
    assert values(made.to_table()) == sorted(plain)


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
    directory = module_tmp / "cluster"
    directory.mkdir()
    with Cluster(directory) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster, module_tmp):
    """One program for all: each must wait for a JVM and two executors."""
    log, marks, go = (module_tmp / name for name in ("log", "marks", "go"))
    expected = write(log)
    marks.mkdir()
    prepare(module_tmp)
    arguments = (module_tmp, log, marks, go, module_tmp / "live")
    with Driver(RECORDS + JOBS, cluster.master, *arguments) as driver:
        wait_until(lambda: len(list(marks.iterdir())) >= 2 or driver.ended, 150)
        killed = [pid for pid in cluster.executors() if cluster.has_worker(pid)]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        # As many marks again: the tasks run in the executors that replaced them.
        wait_until(lambda: len(list(marks.iterdir())) >= 4 or driver.ended, 150)
        go.touch()
        found = driver.answer()
    attempts = len(list(marks.iterdir()))
    return SimpleNamespace(
        found=found, expected=expected, killed=killed, attempts=attempts, directory=module_tmp
    )


def test_records_are_what_a_reader_reads_even_if_both_executors_were_killed(run):
    assert len(run.killed) == 2
    assert run.attempts == 4 + 2  # the running tasks were run again elsewhere
    assert run.found["count"] == ROWS
    assert run.found["digest"] == run.expected


def test_a_live_queue_is_read_where_all_workers_are_on_this_machine(run):
    assert run.found["live here"] == 1


def test_a_live_queue_is_refused_with_the_remedy_where_workers_may_be_elsewhere(run):
    said = run.found["live elsewhere"]
    assert "a live queue can be read only on its own host" in said
    assert "master=spark://10.0.0.5:7077" in said
    assert '.option("shared", "true")' in said


def test_a_live_queue_is_read_anywhere_when_its_files_are_shared(run):
    assert run.found["live shared"] == 1


def test_import_refine_and_features_give_the_results_of_plain_python(run):
    assert run.found["import"] == [2, 0]
    assert run.found["refine"][1] == run.found["features"][1] == 0
    check_jobs(run.directory)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_import_refine_and_features_survive_executors_killed_all_the_time(cluster, tmp):
    prepare(tmp)
    conf = {"spark.task.maxFailures": "50", "spark.executor.maxNumFailures": "1000"}
    killed = set()
    with Driver("found = {}\n" + JOBS, cluster.master, tmp, conf=conf) as driver:

        def at_work():
            """Executors that have started Python, so they run or ran a task."""
            found = [pid for pid in cluster.executors() if cluster.has_worker(pid)]
            return set(found) - killed or driver.ended

        while len(killed) < 8 and (found := wait_until(at_work, 200)) is not True:
            victim = min(found)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        driver.answer(600)
    assert len(killed) >= 2
    check_jobs(tmp)


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
@pytest.mark.timeout(900)
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
    directory = tmp / "cluster"
    directory.mkdir()
    with (
        Cluster(directory, workers=1, host=host) as cluster,
        tw.open_publisher(tmp / "live", segment_bytes=1 << 20) as writer,
    ):
        writer.append(1, b"x")
        refused, shared = drive(code, cluster.master, tmp / "live")
    assert f"master=spark://{host}:" in refused
    assert shared == 1
