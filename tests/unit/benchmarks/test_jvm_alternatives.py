"""The Python side of the JVM alternatives, with fake programs: no JVM is started."""

import struct
import subprocess
from pathlib import Path

import pytest

from benchmarks.compare import aeron_java, chronicle_java, jvm

ALTERNATIVES = pytest.mark.parametrize("alternative", [chronicle_java, aeron_java])
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """An empty PATH, an empty build directory, and a function that adds a program to PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(jvm, "BUILT", tmp_path / "built")
    jvm._build.cache_clear()

    def put(name, script):
        (directory / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (directory / name).chmod(0o755)

    yield put
    jvm._build.cache_clear()


# ---- what is missing -----------------------------------------------------------------------------
@ALTERNATIVES
def test_without_java_that_is_the_reason(alternative, programs):
    assert alternative.missing() == "no java on PATH"


@ALTERNATIVES
def test_an_old_java_is_named_with_its_version(alternative, programs):
    programs("java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    assert alternative.missing() == "Java 11.0.2 is too old: needs 17"


def test_without_a_compiler_or_maven_that_is_the_reason(programs):
    programs("java", JAVA_17)
    assert chronicle_java.missing() == "no javac on PATH"
    jvm._build.cache_clear()
    programs("javac", "true")
    assert chronicle_java.missing() == "no mvn on PATH"


def test_what_maven_could_not_fetch_is_the_reason_and_nothing_is_left(programs):
    programs("java", JAVA_17)
    programs("javac", "true")
    programs("mvn", r"printf 'Wait\n\033[0m[ERROR] Unknown host\n'; exit 1")
    assert chronicle_java.missing() == "mvn failed: [ERROR] Unknown host"
    assert list(jvm.BUILT.iterdir()) == []


def test_what_is_built_needs_neither_compiler_nor_maven_again(programs):
    programs("java", JAVA_17)
    programs("javac", 'while [ "$1" != -d ]; do shift; done; mkdir "$2"')
    programs("mvn", "true")
    assert chronicle_java.missing() is None
    programs("javac", "exit 1")
    programs("mvn", "exit 1")
    jvm._build.cache_clear()
    assert aeron_java.missing() is None


@pytest.mark.parametrize(
    ("alternative", "artifact"), [(chronicle_java, "chronicle-queue"), (aeron_java, "aeron-all")]
)
def test_the_version_is_the_pinned_one(alternative, artifact, programs):
    programs("java", JAVA_17)
    pom = (jvm.PROJECT / "pom.xml").read_text()
    named = pom.partition(f"<artifactId>{artifact}</artifactId>")[2].split("<version>")[1]
    assert alternative.version() == f"{named.partition('<')[0]}, Java 17.0.15"


# ---- arguments and results -----------------------------------------------------------------------
def test_latencies_are_little_endian_integers(tmp_path):
    values = [1, 250, -3, 2**40]
    (tmp_path / "latencies").write_bytes(struct.pack("<4q", *values))
    read = jvm.read_latencies(tmp_path / "latencies", 4)
    assert read.tolist() == values
    assert read.dtype == "int64"


@pytest.mark.parametrize("size", [0, 31, 33, 40])
def test_a_latency_file_of_another_length_is_refused(tmp_path, size):
    (tmp_path / "latencies").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"latencies has {size} bytes, not 4 integers"):
        jvm.read_latencies(tmp_path / "latencies", 4)


# ---- the two processes ---------------------------------------------------------------------------
@pytest.fixture
def left_running(programs, monkeypatch):
    """The ids of the started processes that still exist, zombies included."""
    jvm._home().mkdir(parents=True)  # run by the fake java
    started, start = [], subprocess.Popen

    def remembered(*args, **options):
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(jvm.subprocess, "Popen", remembered)

    def left():
        assert started
        return [process.pid for process in started if Path(f"/proc/{process.pid}").exists()]

    yield left
    for process in started:
        process.kill()


def ends(receiver, sender):
    """A fake `java` for either end."""
    return f"""
    case " $* " in
      *" receive "*) {receiver} ;;
      *" send "*) {sender} ;;
    esac"""


def test_both_ends_go_through_their_phases(programs, left_running, tmp_path):
    programs("java", ends("echo ready; echo warm; echo 1234.5; read go", "read go"))
    assert chronicle_java.throughput(10, 64, tmp_path) == 1234.5
    assert left_running() == []


def test_a_sender_that_fails_ends_the_receiver_and_reports_why(programs, left_running, tmp_path):
    programs("java", ends("echo ready; exec sleep 1000", "echo no driver >&2; exit 3"))
    with pytest.raises(RuntimeError, match="Main aeron send ended with 3: no driver"):
        aeron_java.one_way(10, 64, 1000, tmp_path)
    assert left_running() == []


def test_a_sender_that_no_longer_gets_its_go_reports_why(programs, left_running, tmp_path):
    mark = tmp_path / "deaf"
    receiver = f"echo ready; until [ -e {mark} ]; do sleep 0.01; done; echo warm; exec sleep 1000"
    programs(
        "java", ends(receiver, f"exec 0<&-; touch {mark}; sleep 0.2; echo disk full >&2; exit 4")
    )
    with pytest.raises(RuntimeError, match="Main chronicle send ended with 4: disk full"):
        chronicle_java.throughput(10, 64, tmp_path)
    assert left_running() == []


def test_a_receiver_that_ends_without_a_result_is_an_error(programs, left_running, tmp_path):
    programs("java", ends("echo ready; echo warm", "exec sleep 1000"))
    with pytest.raises(RuntimeError, match="Main chronicle receive ended with 0"):
        chronicle_java.throughput(10, 64, tmp_path)
    assert left_running() == []


def test_an_end_that_hangs_is_ended_when_the_time_is_up(
    programs, left_running, tmp_path, monkeypatch
):
    monkeypatch.setattr(jvm, "START_S", 0.1)
    programs("java", ends("exec sleep 1000", "true"))
    with pytest.raises(TimeoutError, match="Main chronicle receive"):
        chronicle_java.throughput(10, 64, tmp_path)
    assert left_running() == []


def test_it_does_not_run_where_something_is_missing(programs, tmp_path):
    with pytest.raises(RuntimeError, match="no java on PATH"):
        chronicle_java.throughput(10, 64, tmp_path)


def test_a_message_too_small_for_its_stamp_is_refused(tmp_path):
    with pytest.raises(ValueError, match="size=7, at least 8"):
        chronicle_java.throughput(10, 7, tmp_path)
