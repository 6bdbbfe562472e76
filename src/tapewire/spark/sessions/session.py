"""A Spark session that suits tapes."""

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
from tapewire.spark.sessions import environment as packed
from tapewire.spark.sessions import masters, settings
from tapewire.spark.sessions.java import require_java
from tapewire.spark.sessions.masters import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from socketserver import BaseServer

__all__ = ["context_of", "is_loopback", "parallelism_of", "session"]

LOCAL = "local[*]"
# The JVM says this before any of its own settings could stop it.
_SAID_ANYWAY = r"""
/^WARNING: Using incubator modules: jdk\.incubator\.vector$/d
# A worker of PySpark's that Java has hung up on while it stopped: it had nothing to say any more,
# and may itself be ended while it says so.
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
_filters: list[subprocess.Popen[bytes]] = []  # they live as long as their JVM


def session(
    app: str = "tapewire",
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
    environment: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session that knows the format ``tapewire``; the one under way when there is one.

    Args:
        app: Name of the application.
        master: ``local[*]``, the default: all cores of this machine, nothing to start.
            ``spark://host:7077``: a standalone cluster. ``sc://host:15002``: a Connect server.
        conf: Settings of Spark; they go before those that are made here.
        ui: Serve Spark's own page about what is going on; its address goes to standard error.
        environment: An archive that `pack` made, for workers without Tapewire: a file here, or an
            address that workers can fetch from.

    Raises:
        JavaUnusable: There is no Java, or one older than 17.
        InvalidOption: The session under way has another master, or cannot take a setting; or
            nobody answers at the address of `master`.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session("research", master="local[2]")  # doctest: +SKIP
    """
    from tapewire.spark import register

    conf = {name: str(value) for name, value in (conf or {}).items()}
    if environment is not None:
        conf |= packed.conf_for(environment, conf)
    if is_remote() or (master is not None and master.startswith("sc://")):
        spark = _remote(app, master, conf)
    elif SparkContext._active_spark_context is not None:
        spark = _reused(master, conf)
    else:
        path = {} if environment is None else {"PATH": packed.search_path(os.environ)}
        spark = _started(app, master, conf, ui, path)
    register(spark)
    return spark


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a session; one of Connect has none that could be asked."""
    context: SparkContext | None = getattr(spark, "_sc", None)
    return context


def parallelism_of(spark: SparkSession) -> int | None:
    """Cores of all workers; None where that cannot be asked."""
    context = context_of(spark)
    return None if context is None else int(context.defaultParallelism)


def _started(
    app: str, master: str | None, conf: Mapping[str, str], ui: bool, variables: Mapping[str, str]
) -> SparkSession:
    given = dict(conf)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit's: its --master, its memory, its Java
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
        own = settings.of(master or LOCAL, ui=ui)
        if "spark.driver.extraJavaOptions" in given:
            # Both; of two that say the same thing Java takes the last.
            options = "spark.driver.extraJavaOptions"
            given[options] = f"{own[options]} {given[options]}"
    builder = SparkSession.builder.appName(app)
    for name, value in (own | given).items():
        builder = builder.config(name, value)
    launching = _launching({**settings.environment(own | given, os.environ), **variables})
    with launching, _interrupts_as_before():
        spark = builder.getOrCreate()
    _let_hang_up(spark.sparkContext._accumulatorServer)
    atexit.unregister(_end)
    atexit.register(_end, own.get("spark.sql.warehouse.dir"))
    if ui and spark.sparkContext.uiWebUrl:
        print(f"Spark's page: {spark.sparkContext.uiWebUrl}", file=sys.stderr)
    return spark


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Who has chosen what Ctrl-C does keeps that, and a Java half started goes without a word.

    PySpark would put a handler of its own in its place, which asks Java to cancel jobs in the midst
    of whatever call is under way.
    """
    module: Any = context_module
    theirs = module.signal
    if signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, None):
        deaf = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
        module.signal = deaf
    before = _children()
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        for each in _filters:
            each.kill()
        _end_jvm()
        # One that nobody is connected to yet would find the file gone that it is to answer in, and
        # then stay for ever.
        for pid in filter(_is_spark, _children() - before):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    finally:
        module.signal = theirs


def _children() -> set[int]:
    """Processes that this one has started, by any of its threads."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended just now
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def _is_spark(pid: int) -> bool:
    """Whether a process is a Java of Spark's, or the script that becomes one."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"spark-submit" in command or b"org.apache.spark" in command


def _let_hang_up(server: BaseServer) -> None:
    """Java hangs up on PySpark's server of accumulators when it stops: no error to print."""
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            tell(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _reused(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    has = spark.sparkContext.master
    if master not in (None, has):
        raise InvalidOption(
            f"a process has one Spark at a time: master={master}, under way={has}",
            hint="stop() that session first, or leave `master` out to use it",
        )
    _apply(spark, conf)
    return spark


def _apply(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """A user's settings into a session that runs already, those that it can still take."""
    for name, value in conf.items():
        if spark.conf.get(name, None) == value:
            continue
        if not spark.conf.isModifiable(name):
            raise InvalidOption(
                f"a session that runs cannot take this setting: {name}={value}",
                hint="stop() it first, or give the setting where Spark is started",
            )
        spark.conf.set(name, value)


def _remote(app: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A Connect session: that under way, when it is of this server."""
    # Beside a Connect session it is that of its server, which `remote("local[2]")` has here.
    plain = SparkContext._active_spark_context
    spark = SparkSession.getActiveSession() if is_remote() else None
    if plain is not None or (spark is not None and master is not None):
        has = plain.master if plain is not None else spark.client._builder.endpoint  # type: ignore[union-attr]
        same = master is None or masters.connect_endpoint(master) == has
        if spark is None or not same:
            raise InvalidOption(
                f"a process has one Spark at a time: master={master}, under way={has}",
                hint="stop() that session first, or leave `master` out to use it",
            )
    if spark is None:
        builder = SparkSession.builder.appName(app)
        if master is not None:  # else SPARK_REMOTE has it
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
    """Have the JVM that is started inside see `environment`, and say nothing that is no error."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with _filtered_stderr(_SAID_ANYWAY):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _filtered_stderr(script: str) -> Iterator[None]:
    """Processes started inside have a standard error that goes through this script of sed.

    The filter is a process of its own, so that Java never waits for this one; it ends with the last
    process that writes to it.
    """
    sed = shutil.which("sed")
    try:
        ours = os.dup(2)
    except OSError:  # a daemon's is closed
        yield
        return
    if sed is None:
        os.close(ours)
        yield
        return
    # A group of its own: Ctrl-C is for Python, and what Spark says while it stops comes after that.
    filtering = subprocess.Popen(
        [sed, "--unbuffered", script],
        stdin=subprocess.PIPE,
        stdout=ours,
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
        os.dup2(ours, 2)
        os.close(ours)


def _end(warehouse: str | None) -> None:
    """At the interpreter's exit: stop what runs, and stay until the JVM is gone."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    _end_jvm()
    if warehouse is not None:
        shutil.rmtree(warehouse, ignore_errors=True)  # is there only if a table was saved


def _end_jvm() -> None:
    """End the JVM that a stopped session leaves: it has the memory and variables of that one."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # what its JVM waits for to end
    for child in (process, *_filters):
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    _filters.clear()
