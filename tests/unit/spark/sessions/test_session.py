"""Settings and checks of a session, without starting one."""

import os
import re
import signal
import socket
import socketserver
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.core import context

from conftest import wait_until
from tapewire import errors
from tapewire.spark import session
from tapewire.spark.sessions import java, masters, packed_environment, settings
from tapewire.spark.sessions import session as sessions
from tapewire.spark.sessions.session import _ignore_closed_connections


def fake_java(home, text, code=0):
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


def test_the_error_for_missing_java_has_the_command_to_install_it(tmp):
    with pytest.raises(errors.JavaUnusable, match=r"PATH has no java; install one .*openjdk-17"):
        java.require_java({"PATH": str(tmp)})


def test_the_error_for_an_invalid_java_home_names_it(tmp):
    with pytest.raises(errors.JavaUnusable, match=rf"JAVA_HOME={tmp}/nowhere; correct or unset"):
        java.require_java({"JAVA_HOME": f"{tmp}/nowhere", "PATH": os.environ["PATH"]})


@pytest.mark.parametrize("output", ['java version "1.8.0_402"', 'openjdk version "11.0.22" 2024'])
def test_the_error_for_an_old_java_gives_its_version(tmp, output):
    home = fake_java(tmp, output)
    with pytest.raises(errors.JavaUnusable, match=r"17 or newer: version=(8|11) \[.*bin/java\]"):
        java.require_java({"JAVA_HOME": str(home)})


def test_java_home_has_precedence_over_path(tmp):
    new = fake_java(tmp / "new", 'openjdk version "21.0.2" 2024-01-16')
    old = fake_java(tmp / "old", 'java version "1.8.0_402"')
    assert java.require_java({"JAVA_HOME": str(new), "PATH": f"{old}/bin"}) == 21


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [("no such thing", 0, "java prints no version"), ("cannot allocate", 1, "java does not run")],
)
def test_a_java_that_does_not_run_is_refused(tmp, output, code, error):
    home = fake_java(tmp, output, code)
    with pytest.raises(errors.JavaUnusable, match=error):
        java.require_java({"JAVA_HOME": str(home)})


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://127.0.1.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://127.0.0.1:7077,127.0.0.1:7078", True),
        ("spark://127.0.0.1:7077,10.0.0.5:7077", False),
        ("spark://10.0.0.5:7077", False),
        ("spark://localhost.example.org:7077", False),
        ("spark://127.0.0.1.example.org:7077", False),
        ("k8s://https://127.0.0.1:6443", False),
        ("yarn", False),
        ("sc://127.0.0.1:15002", False),
        ("", False),
    ],
)
def test_loopback_masters_are_those_whose_workers_run_on_this_machine(master, here):
    assert masters.is_loopback(master) is here


def test_a_connect_address_without_a_server_is_reported_at_once():
    with pytest.raises(errors.InvalidOption, match=r"no Spark Connect server.*sc://127.0.0.1:1 "):
        masters.require_connect("sc://127.0.0.1:1")


@pytest.mark.parametrize("address", ["sc://", "sc://host:notaport"])
def test_an_invalid_connect_address_is_refused(address):
    with pytest.raises(errors.InvalidOption, match="invalid address"):
        masters.require_connect(address)


def test_a_master_that_does_not_listen_is_reported_at_once(no_spark):
    """Spark itself would retry silently for minutes."""
    with pytest.raises(errors.InvalidOption, match=r"no Spark master.*spark://127.0.0.1:1 "):
        session("x", "spark://127.0.0.1:1")


@pytest.mark.parametrize("master", ["local[x]", "local[0]", "local[2", "standalone", "", "yarn"])
def test_an_invalid_master_is_reported_before_java_starts(no_spark, monkeypatch, master):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sessions, "require_java", lambda: pytest.fail("Java was searched for"))
    with pytest.raises(errors.InvalidOption, match=f"master='{re.escape(master)}'"):
        session("x", master=master)


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[8]",
        "local[*,3]",
        "local-cluster[2,1,1024]",
        "spark://a:1",
        "k8s://a",
        "yarn",
    ],
)
def test_a_valid_master_is_accepted(master):
    masters.check_form(master, {"YARN_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, signal.default_int_handler])
def test_a_sigint_handler_that_was_set_is_kept(chosen):
    before = signal.signal(signal.SIGINT, chosen)
    try:
        with sessions._interruptible():
            context.signal.signal(context.signal.SIGINT, signal.SIG_DFL)  # like SparkContext
        kept = signal.getsignal(signal.SIGINT) is chosen
    finally:
        signal.signal(signal.SIGINT, before)
    assert kept is (chosen is signal.SIG_IGN)
    assert context.signal is signal


def test_a_java_that_is_starting_is_ended_by_ctrl_c():
    begun = []

    def start():
        with sessions._interruptible():
            begun.extend(
                subprocess.Popen(["sh", "-c", "sleep 60; exit", name])
                for name in ("spark-submit", "another program")
            )
            # The command line is empty for a moment after exec().
            command = Path(f"/proc/{begun[0].pid}/cmdline")
            wait_until(lambda: b"spark-submit" in command.read_bytes())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    try:
        assert begun[0].wait() == -signal.SIGKILL
        assert begun[1].poll() is None
    finally:
        for process in begun:
            process.kill()
            process.wait()


def test_one_listening_master_of_several_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        masters.require_standalone(f"spark://127.0.0.1:1,127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["spark://", "spark://host", "spark://host:x", "spark://:7077"])
def test_a_master_with_an_invalid_address_is_refused(address):
    with pytest.raises(errors.InvalidOption, match="invalid address"):
        masters.require_standalone(address)


def test_a_local_session_listens_only_on_loopback():
    made = settings.defaults("local[2]", ui=True)
    assert made["spark.driver.bindAddress"] == made["spark.driver.host"] == "127.0.0.1"
    assert settings.jvm_environment(made, {})["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_session_with_a_remote_master_does_not_bind_to_loopback():
    made = settings.defaults("spark://10.0.0.5:7077", ui=False)
    assert "spark.driver.bindAddress" not in made
    assert "spark.driver.memory" not in made
    assert "SPARK_LOCAL_IP" not in settings.jvm_environment(made, {})


def test_workers_use_the_running_interpreter():
    assert settings.jvm_environment({}, {})["PYSPARK_PYTHON"] == sys.executable


def test_a_configured_interpreter_overrides_the_running_one():
    variables = {"PYSPARK_PYTHON": "/opt/python"}
    assert settings.jvm_environment({}, variables)["PYSPARK_PYTHON"] == "/opt/python"
    conf = {"spark.pyspark.python": "python3.11"}
    assert settings.jvm_environment(conf, variables)["PYSPARK_PYTHON"] == "python3.11"


def test_the_scratch_directory_is_private(tmp, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    directory = settings.scratch_directory()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o755)
    assert stat.S_IMODE(settings.scratch_directory().stat().st_mode) == 0o700


def test_a_scratch_directory_that_is_a_link_is_refused(tmp, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    (tmp / "elsewhere").mkdir()
    (tmp / f"tapewire-spark-{os.getuid()}").symlink_to(tmp / "elsewhere")
    with pytest.raises(errors.InvalidOption, match=r"must belong to this user .*set TMPDIR"):
        settings.scratch_directory()


def test_a_packed_environment_is_added_to_the_archives_of_the_user(tmp):
    archive = tmp / "environment.tar"
    archive.write_bytes(b"")
    made = packed_environment.conf_for(archive, {"spark.archives": "hdfs://x/data.zip#data"})
    assert made["spark.archives"] == f"hdfs://x/data.zip#data,{archive}#environment"
    assert made["spark.executorEnv.PYTHONPATH"] == "environment"


def test_a_missing_packed_environment_is_refused(tmp):
    with pytest.raises(errors.InvalidOption, match=r"no such packed environment .*nothing.tar"):
        packed_environment.conf_for(tmp / "nothing.tar", {})


def test_the_name_of_an_archive_must_have_a_known_suffix(tmp):
    with pytest.raises(errors.InvalidOption, match=r"must end in .*target='env.rar'"):
        packed_environment.pack(tmp / "env.rar")


def test_a_package_that_is_not_installed_cannot_be_packed(tmp):
    with pytest.raises(errors.InvalidOption, match=r"not installed: package=no-such-thing"):
        packed_environment.pack(tmp / "env.tar", "no-such-thing")


def test_an_editable_package_cannot_be_packed(tmp, monkeypatch):
    directory = tmp / "there"
    info = directory / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "RECORD").write_text("mine-1.0.dist-info/METADATA,,\n__editable__.mine.pth,,\n")
    (directory / "__editable__.mine.pth").write_text("/src/mine\n")
    monkeypatch.syspath_prepend(str(directory))
    found = packed_environment._required(["mine"])
    match = "cannot pack an editable package: package=mine; install it without"
    with pytest.raises(errors.InvalidOption, match=match):
        packed_environment._files(found)


HUNG_UP = """\
Traceback (most recent call last):
  File "pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""


def _filtered(text):
    """The lines of `text` that pass the filter of standard error."""
    script = (
        "import subprocess, sys\n"
        "from tapewire.spark.sessions.session import _DELETE_NOISE, _filtered_stderr, _filters\n"
        "with _filtered_stderr(_DELETE_NOISE):\n"
        "    subprocess.run(['sh', '-c', 'printf %s \"$0\" >&2', sys.argv[1]])\n"
        "_filters[0].wait()\n"
    )
    command = [sys.executable, "-c", script, text]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_only_noise_is_removed_from_standard_error():
    other = HUNG_UP.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: 7")
    ours = HUNG_UP.replace("daemon.py", "worker.py")
    noise = "WARNING: Using incubator modules: jdk.incubator.vector\n"
    lines = _filtered("one\n" + noise + HUNG_UP + other + ours + HUNG_UP + "last")
    assert lines == ["one", *other.splitlines(), *ours.splitlines(), "last"]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_an_incomplete_traceback_of_a_closed_connection_is_removed(lines):
    assert _filtered("one\n" + "".join(HUNG_UP.splitlines(True)[:lines])) == ["one"]


def test_only_a_closed_connection_of_the_accumulator_server_prints_no_error(capfd):
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        _ignore_closed_connections(server)
        for error in (EOFError(), ValueError("7")):
            try:
                raise error
            except (EOFError, ValueError):
                server.handle_error(None, ("a worker", 1))
    printed = capfd.readouterr().err
    assert "ValueError: 7" in printed
    assert "EOFError" not in printed


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_a_connect_session_with_its_server_in_this_process_is_used(monkeypatch, master):
    """`SparkSession.builder.remote("local[2]")` creates both a Connect session and a context."""
    running = object()
    monkeypatch.setattr(sessions, "is_remote", lambda: True)
    monkeypatch.setattr(
        sessions.SparkContext, "_active_spark_context", SimpleNamespace(master="local[2]")
    )
    monkeypatch.setattr(sessions.SparkSession, "getActiveSession", lambda: running)
    assert sessions._remote("x", master, {}) is running
    with pytest.raises(errors.InvalidOption, match=r"running=local\[2\]"):
        sessions._remote("x", "sc://10.0.0.5", {})
