"""A real standalone Spark on this machine: one master, workers, all of the pip package."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyspark

from benchmarks.harness import die_with_parent
from conftest import wait_until
from tests.support.processes import ROOT

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 150.0  # a busy machine
EXECUTOR = "CoarseGrainedExecutorBackend"
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # as tests/support/spark has it for other tests
)


class Daemon:
    """A Spark class in its own JVM and process group, with its output in a file."""

    def __init__(self, directory, name, main, *arguments, host="127.0.0.1", env=()):
        self.name = name
        self.log = directory / f"{name}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(directory / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        } | dict(env)
        ours = ("JAVA_HOME", "SPARK_CONF_DIR")
        environment |= {given: os.environ[given] for given in ours if given in os.environ}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), main, *arguments],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (one system call)
            )

    def message_of(self, pattern):
        """The first group of `pattern` in its log, once it appears."""

        def found():
            text = self.log.read_text(errors="replace")
            assert self.process.poll() is None, f"{self.name} ended by itself:\n{text[-4000:]}"
            return re.search(pattern, text)

        return wait_until(found, START_SECONDS)[1]

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """A master and workers with one core each; `close()` ends all processes."""

    def __init__(self, directory, workers=2, memory="800m", host="127.0.0.1", env=()):
        self.directory = directory
        self._daemons = []
        try:
            where = ("--host", host, "--port", "0", "--webui-port", "0")
            main = "org.apache.spark.deploy.master.Master"
            master = self._start("master", main, *where, host=host)
            self.master = master.message_of(r"Starting Spark master at (spark://\S+)")
            self.workers = [
                self._start(
                    f"worker-{i}",
                    "org.apache.spark.deploy.worker.Worker",
                    *where,
                    *("--cores", "1", "--memory", memory),
                    *("--work-dir", str(directory / f"work-{i}"), self.master),
                    host=host,
                    env=env,
                )
                for i in range(workers)
            ]
            for worker in self.workers:
                worker.message_of(r"(Successfully registered) with master")
        except BaseException:
            self.close()
            raise

    def _start(self, name, main, *arguments, **options):
        daemon = Daemon(self.directory, name, main, *arguments, **options)
        self._daemons.append(daemon)
        return daemon

    def executors(self):
        """Pids of the executors that run now."""
        return [
            pid
            for worker in self.workers
            for pid in _children(worker.process.pid)
            if EXECUTOR.encode() in _command_line(pid)
        ]

    @staticmethod
    def has_worker(executor):
        """Whether an executor has started Python."""
        return any(b"pyspark" in _command_line(pid) for pid in _children(executor))

    def logs(self):
        """The standard error of the executors, which has the reason of a failed task."""
        return "\n".join(p.read_text() for p in sorted(self.directory.glob("work-*/*/*/stderr")))

    def close(self):
        executors = self.executors() if hasattr(self, "workers") else []
        for daemon in reversed(self._daemons):
            daemon.kill()
        for pid in executors:  # they end with their worker; this makes sure
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _children(parent):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        message_of = Path(f"/proc/{parent}/task").glob("*/children")
        return [int(pid) for path in message_of for pid in path.read_text().split()]
    return []


def _command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


# The beginning of every driver program: `spark`, on the master in the first argument.
_DRIVER = """
import json, sys
from tapewire import spark as tws
master, conf = sys.argv[1], json.loads(sys.argv[2])
args = sys.argv[3:]
spark = tws.session("tests", master=master, conf=conf)
def answer(value):
    print("ANSWER " + json.dumps(value), flush=True)
"""
CONF = {
    "spark.executor.memory": "600m",
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "4",
    "spark.cores.max": "2",
}


class Driver:
    """A driver program in a separate Python, since a process has one Spark."""

    def __init__(self, code, master, *arguments, conf=(), python=sys.executable, env=()):
        program = _DRIVER + textwrap.dedent(code)
        environment = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1") | dict(env)
        settings = json.dumps((CONF if master.startswith("spark://") else {}) | dict(conf))
        self._process = subprocess.Popen(
            [str(python), "-c", program, master, settings, *map(str, arguments)],
            env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def ended(self):
        return self._process.poll() is not None

    def answer(self, timeout=400.0):
        """The value passed to `answer(…)`, once the program has ended with exit code 0."""
        out, err = self._process.communicate(timeout=timeout)
        assert self._process.returncode == 0, f"{out}\n{err}"
        (line,) = [line for line in out.splitlines() if line.startswith("ANSWER ")]
        return json.loads(line.removeprefix("ANSWER "))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._process.poll() is None:
            self._process.kill()  # its JVM ends with it
            self._process.communicate()


def connect_server(directory, master="local[2]"):
    """A Spark Connect server of the pip package, as its script starts it; and its address."""
    server = Daemon(
        directory,
        "connect",
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", master),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.ui.enabled=false"),
        "spark-internal",
        env={"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "600m"},
    )
    try:
        port = server.message_of(r"Spark Connect server started at: \S*?:(\d+)")
    except BaseException:
        server.kill()
        raise
    return server, f"sc://127.0.0.1:{port}"


def drive(code, master, *arguments, **options):
    """The answer of a driver program."""
    with Driver(code, master, *arguments, **options) as driver:
        return driver.answer()
