"""What a session is given, without starting one."""

import os
import re
import signal
import socket
import socketserver
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark.core import context

from tapewire import errors
from tapewire.spark import session
from tapewire.spark.sessions import environment, java, masters, settings
from tapewire.spark.sessions import session as sessions
from tapewire.spark.sessions.session import _let_hang_up


def fake_java(folder, text, code=0):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


def test_no_java_says_what_to_install(tmp):
    with pytest.raises(errors.JavaUnusable, match=r"PATH has no java; install one .*openjdk-17"):
        java.require_java({"PATH": str(tmp)})


def test_a_wrong_java_home_is_named(tmp):
    with pytest.raises(errors.JavaUnusable, match=rf"JAVA_HOME={tmp}/nowhere; correct or unset"):
        java.require_java({"JAVA_HOME": f"{tmp}/nowhere", "PATH": os.environ["PATH"]})


@pytest.mark.parametrize("said", ['java version "1.8.0_402"', 'openjdk version "11.0.22" 2024'])
def test_an_old_java_is_refused_with_its_version(tmp, said):
    home = fake_java(tmp, said)
    with pytest.raises(errors.JavaUnusable, match=r"17 or newer: version=(8|11) \[.*bin/java\]"):
        java.require_java({"JAVA_HOME": str(home)})


def test_a_new_java_home_goes_before_the_path(tmp):
    new = fake_java(tmp / "new", 'openjdk version "21.0.2" 2024-01-16')
    old = fake_java(tmp / "old", 'java version "1.8.0_402"')
    assert java.require_java({"JAVA_HOME": str(new), "PATH": f"{old}/bin"}) == 21


@pytest.mark.parametrize(("said", "code"), [("no such thing", 0), ("cannot allocate", 1)])
def test_a_java_that_does_not_run_is_refused(tmp, said, code):
    home = fake_java(tmp, said, code)
    with pytest.raises(errors.JavaUnusable, match="java must"):
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
def test_only_masters_whose_workers_are_here_count_as_loopback(master, here):
    assert masters.is_loopback(master) is here


def test_a_connect_address_nobody_listens_on_is_told_at_once():
    with pytest.raises(errors.InvalidOption, match=r"no Spark Connect server.*sc://127.0.0.1:1 "):
        masters.require_connect("sc://127.0.0.1:1")


@pytest.mark.parametrize("address", ["sc://", "sc://host:notaport"])
def test_a_connect_address_that_is_none_is_refused(address):
    with pytest.raises(errors.InvalidOption, match="not an address"):
        masters.require_connect(address)


def test_a_master_nobody_listens_on_is_told_at_once(no_spark):
    """Spark itself would say nothing for minutes."""
    with pytest.raises(errors.InvalidOption, match=r"no Spark master.*spark://127.0.0.1:1 "):
        session("x", "spark://127.0.0.1:1")


@pytest.mark.parametrize("master", ["local[x]", "local[0]", "local[2", "standalone", "", "yarn"])
def test_what_is_no_master_is_told_before_java_starts(no_spark, monkeypatch, master):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sessions, "require_java", lambda: pytest.fail("Java was looked for"))
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
def test_what_is_a_master_is_let_by(master):
    masters.check_form(master, {"YARN_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize("chosen", [signal.SIG_IGN, signal.default_int_handler])
def test_what_ctrl_c_does_stays_where_somebody_chose_it(chosen):
    before = signal.signal(signal.SIGINT, chosen)
    try:
        with sessions._interrupts_as_before():
            context.signal.signal(context.signal.SIGINT, signal.SIG_DFL)  # as a SparkContext does
        kept = signal.getsignal(signal.SIGINT) is chosen
    finally:
        signal.signal(signal.SIGINT, before)
    assert kept is (chosen is signal.SIG_IGN)
    assert context.signal is signal


def test_a_java_that_was_being_started_is_ended_with_ctrl_c():
    begun = []

    def start():
        with sessions._interrupts_as_before():
            begun.extend(
                subprocess.Popen(["sh", "-c", "sleep 60; exit", name])
                for name in ("spark-submit", "of somebody else")
            )
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


def test_one_of_several_masters_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        masters.require_standalone(f"spark://127.0.0.1:1,127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["spark://", "spark://host", "spark://host:x", "spark://:7077"])
def test_a_master_that_is_no_address_is_refused(address):
    with pytest.raises(errors.InvalidOption, match="not an address"):
        masters.require_standalone(address)


def test_a_local_session_listens_on_loopback_alone():
    made = settings.of("local[2]", ui=True)
    assert made["spark.driver.bindAddress"] == made["spark.driver.host"] == "127.0.0.1"
    assert settings.environment(made, {})["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_remote_master_is_reached_from_an_address_of_its_network():
    made = settings.of("spark://10.0.0.5:7077", ui=False)
    assert "spark.driver.bindAddress" not in made
    assert "spark.driver.memory" not in made
    assert "SPARK_LOCAL_IP" not in settings.environment(made, {})


def test_workers_run_the_interpreter_that_has_this_package():
    assert settings.environment({}, {})["PYSPARK_PYTHON"] == sys.executable


def test_a_users_interpreter_goes_before_ours():
    surroundings = {"PYSPARK_PYTHON": "/opt/python"}
    assert settings.environment({}, surroundings)["PYSPARK_PYTHON"] == "/opt/python"
    named = {"spark.pyspark.python": "python3.11"}
    assert settings.environment(named, surroundings)["PYSPARK_PYTHON"] == "python3.11"


def test_the_scratch_folder_is_private(tmp, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    folder = settings.private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(settings.private_folder().stat().st_mode) == 0o700


def test_a_scratch_folder_that_is_a_link_is_refused(tmp, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    (tmp / "elsewhere").mkdir()
    (tmp / f"tapewire-spark-{os.getuid()}").symlink_to(tmp / "elsewhere")
    with pytest.raises(errors.InvalidOption, match=r"this user's own .*set TMPDIR"):
        settings.private_folder()


def test_a_packed_environment_joins_the_archives_of_a_user(tmp):
    archive = tmp / "environment.tar"
    archive.write_bytes(b"")
    made = environment.conf_for(archive, {"spark.archives": "hdfs://x/data.zip#data"})
    assert made["spark.archives"] == f"hdfs://x/data.zip#data,{archive}#environment"
    assert made["spark.executorEnv.PYTHONPATH"] == "environment"


def test_a_packed_environment_that_is_not_there_is_refused(tmp):
    with pytest.raises(errors.InvalidOption, match=r"must be there .*nothing.tar"):
        environment.conf_for(tmp / "nothing.tar", {})


def test_an_archive_is_named_for_its_kind(tmp):
    with pytest.raises(errors.InvalidOption, match=r"must end in .*target='env.rar'"):
        environment.pack(tmp / "env.rar")


def test_a_package_that_is_not_installed_cannot_be_packed(tmp):
    with pytest.raises(errors.InvalidOption, match=r"must be installed.*no-such-thing"):
        environment.pack(tmp / "env.tar", "no-such-thing")


def test_an_editable_package_cannot_be_packed(tmp, monkeypatch):
    folder = tmp / "there"
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "RECORD").write_text("mine-1.0.dist-info/METADATA,,\n__editable__.mine.pth,,\n")
    (folder / "__editable__.mine.pth").write_text("/src/mine\n")
    monkeypatch.syspath_prepend(str(folder))
    found = environment._required(["mine"])
    with pytest.raises(errors.InvalidOption, match=r"package=mine is editable; install it without"):
        environment._files(found)


HUNG_UP = """\
Traceback (most recent call last):
  File "pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""


def _said(text):
    """What is left of `text` on standard error."""
    script = (
        "import subprocess, sys\n"
        "from tapewire.spark.sessions.session import _SAID_ANYWAY, _filtered_stderr, _filters\n"
        "with _filtered_stderr(_SAID_ANYWAY):\n"
        "    subprocess.run(['sh', '-c', 'printf %s \"$0\" >&2', sys.argv[1]])\n"
        "_filters[0].wait()\n"
    )
    command = [sys.executable, "-c", script, text]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return said.stderr.splitlines()


def test_what_spark_says_without_need_is_kept_from_standard_error_and_nothing_else():
    other = HUNG_UP.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: 7")
    ours = HUNG_UP.replace("daemon.py", "worker.py")
    noise = "WARNING: Using incubator modules: jdk.incubator.vector\n"
    said = _said("one\n" + noise + HUNG_UP + other + ours + HUNG_UP + "last")
    assert said == ["one", *other.splitlines(), *ours.splitlines(), "last"]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_worker_that_is_ended_while_it_says_that_java_hung_up_is_not_heard(lines):
    assert _said("one\n" + "".join(HUNG_UP.splitlines(True)[:lines])) == ["one"]


def test_java_that_hangs_up_on_the_server_of_accumulators_is_no_error_and_others_are(capfd):
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        _let_hang_up(server)
        for error in (EOFError(), ValueError("7")):
            try:
                raise error
            except (EOFError, ValueError):
                server.handle_error(None, ("a worker", 1))
    said = capfd.readouterr().err
    assert "ValueError: 7" in said
    assert "EOFError" not in said


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_a_connect_session_with_its_server_in_this_process_is_used(monkeypatch, master):
    """`SparkSession.builder.remote("local[2]")` has both a Connect session and a context."""
    there = object()
    monkeypatch.setattr(sessions, "is_remote", lambda: True)
    monkeypatch.setattr(
        sessions.SparkContext, "_active_spark_context", SimpleNamespace(master="local[2]")
    )
    monkeypatch.setattr(sessions.SparkSession, "getActiveSession", lambda: there)
    assert sessions._remote("x", master, {}) is there
    with pytest.raises(errors.InvalidOption, match=r"under way=local\[2\]"):
        sessions._remote("x", "sc://10.0.0.5", {})
