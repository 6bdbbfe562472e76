"""A session in a separate process: what a user sees, and what remains."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.timeout(400)  # a busy machine

PROGRAM = """
import json, os, sys
from pathlib import Path
from tapewire import spark as tws
from tapewire.errors import InvalidOption
from pyspark import SparkContext

# With a Java option of the user in addition to ours.
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for the sake of the test
given = {"spark.driver.memory": "600m", "spark.driver.extraJavaOptions": "-Dmine=yes " + quick}
spark = tws.session("start", master="local[1]", conf=given, ui=True)
print(json.dumps({
    "page": spark.sparkContext.uiWebUrl,
    "memory": spark.conf.get("spark.driver.memory"),
    "mine": SparkContext._jvm.System.getProperty("mine"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "jvm": SparkContext._gateway.proc.pid,
    "scratch": oct(Path(spark.conf.get("spark.local.dir")).stat().st_mode & 0o777),
    "python": spark.range(1).rdd.map(lambda _: sys.executable).collect(),
    "same": tws.session() is spark,
    "environ": [n for n in os.environ if n.startswith("PYSPARK") or n == "SPARK_LOCAL_IP"],
}))
print("refused:", end=" ")
for other in ({"master": "local[3]"}, {"conf": {"spark.driver.memory": "700m"}}):
    try:
        tws.session(**other)
    except InvalidOption as error:
        print(error, end=" | ")
print()
tws.session(conf={"spark.sql.shuffle.partitions": "7"})
print(spark.conf.get("spark.sql.shuffle.partitions"))
spark.range(3).write.saveAsTable("table")
print("before the error", file=sys.stderr, flush=True)
SparkContext._jvm.org.apache.logging.log4j.LogManager.getLogger("tests").error("an error of Java")
spark.stop()
given = {"spark.driver.memory": "500m", "spark.driver.extraJavaOptions": quick}
spark = tws.session("again", master="local[1]", conf=given)
print(SparkContext._jvm.Runtime.getRuntime().maxMemory() >> 20)
"""


@pytest.fixture(scope="module")
def run(module_tmp):
    """Run the program to its end without stop()."""
    environ = {n: v for n, v in os.environ.items() if not n.startswith(("PYSPARK", "SPARK"))}
    environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(module_tmp / "tmp")}
    (module_tmp / "tmp").mkdir()
    (module_tmp / "cwd").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env=environ,
        cwd=module_tmp / "cwd",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts, *lines = done.stdout.splitlines()
    return SimpleNamespace(
        facts=json.loads(facts), lines=lines, err=done.stderr.splitlines(), directory=module_tmp
    )


def test_it_prints_only_the_address_of_its_page_and_errors(run):
    assert len(run.err) == 3, "\n".join(run.err)
    page, marker, error = run.err
    assert page == f"Spark UI: {run.facts['page']}"
    assert marker == "before the error"
    assert error.startswith("spark: ")
    assert error.endswith("ERROR tests: an error of Java")


def test_its_page_is_on_loopback(run):
    assert run.facts["page"].startswith("http://127.0.0.1:")


def test_settings_of_the_user_override_and_extend_ours(run):
    assert (run.facts["memory"], run.facts["mine"], run.facts["zone"]) == ("600m", "yes", "UTC")


def test_its_workers_are_this_interpreter(run):
    assert run.facts["python"] == [sys.executable]


def test_it_does_not_change_the_environment_of_the_process(run):
    assert run.facts["environ"] == []


def test_a_second_call_returns_the_running_session(run):
    assert run.facts["same"]
    assert run.lines[1] == "7"


def test_a_second_call_refuses_what_a_session_cannot_become(run):
    first, second, _ = run.lines[0].split(" | ")
    assert "master=local[3], running=local[1]; stop() that session first" in first
    assert "spark.driver.memory=700m; stop() it first" in second


def test_a_session_after_another_has_its_own_memory(run):
    assert (
        450 < int(run.lines[2]) <= 500
    )  # except for memory that the collector keeps free; 600 before


def test_no_process_outlives_it(run):
    assert not Path(f"/proc/{run.facts['jvm']}").exists()


def test_its_files_are_private_and_gone(run):
    assert run.facts["scratch"] == "0o700"
    left = [p for p in (run.directory / "tmp").rglob("*") if not p.is_dir()]
    assert left == []
    assert list((run.directory / "cwd").iterdir()) == []


def test_a_java_that_is_too_old_is_an_error_with_the_remedy_and_no_traceback_of_spark(tmp):
    java = tmp / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "from tapewire import spark as tws; tws.session()"],
        env=os.environ | {"JAVA_HOME": str(tmp)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tapewire.errors.JavaUnusable: Spark needs Java")
    assert "py4j" not in done.stderr
