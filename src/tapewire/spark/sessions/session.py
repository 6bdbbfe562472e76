"""Spark sessions with settings for Tapewire: started, reused, or of a Connect server."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.core import context as context_module
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession, is_remote

from tapewire.errors import InvalidOption
from tapewire.spark.sessions import masters, packed_environment, settings
from tapewire.spark.sessions.java import require_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from socketserver import BaseServer

__all__ = ["context_of", "parallelism_of", "session"]

LOCAL = "local[*]"
# A sed script that deletes messages which are no errors and which no setting suppresses.
_DELETE_NOISE = r"""
# Printed by the JVM before it reads any settings.
/^WARNING: Using incubator modules: jdk\.incubator\.vector$/d
# A PySpark worker whose connection Java closed on shutdown. The worker may be killed while it
# prints this, so the end of the traceback may be missing.
/^Traceback (most recent call last):$/{
$d
N
/daemon\.py", line [0-9]*, in manager$/!b
$d
N
$d
N
/daemon\.py", line [0-9]*, in worker\nBrokenPipeError: \[Errno 32\] Broken pipe$/d
}
"""
_STOP_SECONDS = 20.0
_filters: list[subprocess.Popen[bytes]] = []  # each runs as long as its JVM


def session(
    app: str = "tapewire",
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
    environment: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """Start a session with the format ``tapewire``, or return the running one.

    Args:
        app: Name of the application.
        master: ``local[*]``, the default: all cores of this machine, with nothing else to start.
            ``spark://host:7077``: a standalone cluster. ``sc://host:15002``: a Connect server.
        conf: Spark settings, which override the defaults.
        ui: Serve Spark's web UI; its address is printed to standard error.
        environment: An archive written by `pack`, for workers without Tapewire: a local file, or a
            URL that workers can fetch.

    Raises:
        JavaUnusable: Java is missing, or older than 17.
        InvalidOption: The running session has another master, or cannot change a setting; or no
            server answers at the address of `master`.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session("research", master="local[2]")  # doctest: +SKIP
    """
    from tapewire.spark import register

    conf = {name: str(value) for name, value in (conf or {}).items()}
    if environment is not None:
        conf |= packed_environment.conf_for(environment, conf)
    if is_remote() or (master is not None and master.startswith("sc://")):
        spark = _remote(app, master, conf)
    elif SparkContext._active_spark_context is not None:
        spark = _reused(master, conf)
    else:
        path = {} if environment is None else {"PATH": packed_environment.driver_path(os.environ)}
        spark = _started(app, master, conf, ui, path)
    register(spark)
    return spark


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a session; None for a Connect session."""
    context: SparkContext | None = getattr(spark, "_sc", None)
    return context


def parallelism_of(spark: SparkSession) -> int | None:
    """Cores of all workers; None for a Connect session."""
    context = context_of(spark)
    return None if context is None else int(context.defaultParallelism)


def _started(
    app: str, master: str | None, conf: Mapping[str, str], ui: bool, variables: Mapping[str, str]
) -> SparkSession:
    given = dict(conf)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit set master, memory and Java
        own = dict(settings.EVERYWHERE)
        if master is not None:
            own["spark.master"] = master
    else:
        if master is not None:
            masters.check_form(master, os.environ)
        require_java()
        if master is not None and master.startswith("spark://"):
            masters.require_standalone(master)
        _end_jvm()
        own = settings.defaults(master or LOCAL, ui=ui)
        if "spark.driver.extraJavaOptions" in given:
            # Pass both: Java uses the last of two values of one option.
            options = "spark.driver.extraJavaOptions"
            given[options] = f"{own[options]} {given[options]}"
    builder = SparkSession.builder.appName(app)
    for name, value in (own | given).items():
        builder = builder.config(name, value)
    launching = _launching({**settings.jvm_environment(own | given, os.environ), **variables})
    with launching, _interruptible():
        spark = builder.getOrCreate()
    _ignore_closed_connections(spark.sparkContext._accumulatorServer)
    atexit.unregister(_end)
    atexit.register(_end, own.get("spark.sql.warehouse.dir"))
    if ui and spark.sparkContext.uiWebUrl:
        print(f"Spark UI: {spark.sparkContext.uiWebUrl}", file=sys.stderr)
    return spark


@contextmanager
def _interruptible() -> Iterator[None]:
    """Keep a SIGINT handler that the program has set, and end a JVM that is interrupted at start.

    PySpark would replace the handler with its own, which asks Java to cancel jobs in the middle of
    any call to Java.
    """
    module: Any = context_module
    original = module.signal
    if signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, None):
        module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    before = _children()
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        for each in _filters:
            each.kill()
        _end_jvm()
        # A JVM without a connection would not find the file for its port, and would never exit.
        for pid in filter(_is_spark, _children() - before):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    finally:
        module.signal = original


def _children() -> set[int]:
    """The child processes of this process, started by any thread."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def _is_spark(pid: int) -> bool:
    """Whether a process is a JVM of Spark, or the script that starts one."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"spark-submit" in command or b"org.apache.spark" in command


def _ignore_closed_connections(server: BaseServer) -> None:
    """Print no error when Java, stopping, closes its connection to the accumulator server."""
    print_error = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            print_error(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _reused(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    running = spark.sparkContext.master
    if master not in (None, running):
        raise _other_session(master, running)
    _apply(spark, conf)
    return spark


def _other_session(master: str | None, running: str | None) -> InvalidOption:
    return InvalidOption(
        f"a process has one Spark session at a time: master={master}, running={running}",
        hint="stop() that session first, or omit `master` to use it",
    )


def _apply(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Set a user's settings in a running session.

    Raises:
        InvalidOption: A setting can no longer be changed.
    """
    for name, value in conf.items():
        if spark.conf.get(name, None) == value:
            continue
        if not spark.conf.isModifiable(name):
            raise InvalidOption(
                f"a running session cannot change this setting: {name}={value}",
                hint="stop() it first, or pass the setting when Spark is started",
            )
        spark.conf.set(name, value)


def _remote(app: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A Connect session: the running one if it uses this server, else a new one."""
    # With `remote("local[2]")` the server is in this process, and its context exists too.
    context = SparkContext._active_spark_context
    spark = SparkSession.getActiveSession() if is_remote() else None
    if context is not None or (spark is not None and master is not None):
        client: Any = getattr(spark, "client", None)
        running = client._builder.endpoint if context is None else context.master
        same = master is None or masters.connect_endpoint(master) == running
        if spark is None or not same:
            raise _other_session(master, running)
    if spark is None:
        builder = SparkSession.builder.appName(app)
        if master is not None:  # otherwise SPARK_REMOTE is used
            masters.require_connect(master)
            builder = builder.remote(master)
        spark = builder.getOrCreate()
        for name, value in settings.EVERYWHERE.items():
            if name not in conf and spark.conf.isModifiable(name):
                spark.conf.set(name, value)
    _apply(spark, conf)
    return spark


@contextmanager
def _launching(environment: Mapping[str, str]) -> Iterator[None]:
    """Start a JVM inside with these variables, and filter what it prints to standard error."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with _filtered_stderr(_DELETE_NOISE):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _filtered_stderr(script: str) -> Iterator[None]:
    """Pass the standard error of processes started inside through this sed script.

    The filter is a separate process, so that Java never waits for this one; it ends with the last
    process that writes to it.
    """
    sed = shutil.which("sed")
    try:
        original = os.dup(2)
    except OSError:  # closed, as in a daemon
        yield
        return
    if sed is None:
        os.close(original)
        yield
        return
    # In a session of its own: Ctrl-C must not end it, because Spark still prints while it stops.
    filtering = subprocess.Popen(
        [sed, "--unbuffered", script],
        stdin=subprocess.PIPE,
        stdout=original,
        start_new_session=True,
    )
    assert filtering.stdin is not None
    _filters.append(filtering)
    sys.stderr.flush()
    os.dup2(filtering.stdin.fileno(), 2)
    filtering.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)


def _end(warehouse: str | None) -> None:
    """At the interpreter's exit: stop the session, and wait until the JVM has exited."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    _end_jvm()
    if warehouse is not None:
        shutil.rmtree(warehouse, ignore_errors=True)  # exists only if a table was saved


def _end_jvm() -> None:
    """End the JVM that a stopped session leaves, whose memory and variables cannot be changed."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # the JVM exits when its standard input is closed
    for child in (process, *_filters):
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    _filters.clear()
