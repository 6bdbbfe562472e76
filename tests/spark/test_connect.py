"""Through a Spark Connect server: this process holds no JVM, the server plans and reads."""

import pytest

import tapewire as tw
from tests.spark.cluster import connect_server, drive

ROWS = 5_000
pytestmark = pytest.mark.timeout(600)  # two JVMs on a busy machine

PROGRAM = """
from tapewire.errors import InvalidOption
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
log, target = args
found = {"remote": type(spark).__module__, "zone": spark.conf.get("spark.sql.session.timeZone")}
found["same"] = tws.session(master=master) is spark and tws.session() is spark

def read(path, session=spark, **options):
    frame = session.read.format("tapewire").options(**options).load(path)
    return list(frame.agg(F.count("*"), F.sum("seq"), F.sum(F.length("payload"))).first())

found["read"] = read(log, partitions="4")
rows = spark.read.format("tapewire").load(log).drop("queue", "timestamp")
rows = rows.withColumns({"venue": F.lit("v"), "symbol": F.lit("s"), "stream": F.lit("raw")})
rows.write.format("tapewire").mode("append").save(target)
found["written"] = read(target)
found["refused"] = []
for other in (
    {"conf": {"spark.executor.memory": "1g"}},
    {"master": "local[1]"},
    {"master": "sc://127.0.0.1:1"},
):
    try:
        tws.session(**other)
    except InvalidOption as error:
        found["refused"].append(str(error))
# A plain session after one import.
spark.stop()
plain = SparkSession.builder.remote(master).getOrCreate()
tws.register(plain)
found["plain"] = read(log, plain)
plain.stop()
answer(found)
"""


@pytest.fixture(scope="module")
def expected(module_tmp):
    with tw.open_publisher(module_tmp / "log", segment_bytes=1 << 18) as writer:
        for i in range(ROWS):
            writer.append(1, b"%d" % i)
    return [ROWS, sum(range(ROWS)), sum(len(b"%d" % i) for i in range(ROWS))]


@pytest.fixture(scope="module")
def found(module_tmp, expected):
    directory = module_tmp / "server"
    directory.mkdir()
    server, address = connect_server(directory)
    try:
        yield drive(PROGRAM, address, module_tmp / "log", module_tmp / "target")
    finally:
        server.kill()


def test_a_session_of_a_connect_address_is_a_remote_one_with_our_settings(found):
    assert found["remote"] == "pyspark.sql.connect.session"
    assert found["zone"] == "UTC"
    assert found["same"]


def test_records_are_read_by_the_server(found, expected):
    assert found["read"] == expected


def test_the_sink_writes_on_the_server(found, expected):
    assert found["written"] == expected


def test_a_plain_remote_session_needs_one_import(found, expected):
    assert found["plain"] == expected


def test_a_setting_of_the_servers_start_is_refused(found):
    assert "spark.executor.memory=1g; stop() it first, or pass the setting" in found["refused"][0]


def test_another_master_is_refused_while_a_remote_session_is_there(found):
    local, elsewhere = found["refused"][1:]
    assert "master=local[1], running=127.0.0.1:" in local
    assert "master=sc://127.0.0.1:1, running=127.0.0.1:" in elsewhere
