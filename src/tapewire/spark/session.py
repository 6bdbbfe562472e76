"""A Spark session that suits tapes."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_loopback", "session"]

# What every session has, wherever it runs. A user's own `conf` goes before these.
_CONF = {
    "spark.sql.session.timeZone": "UTC",  # days of an archive are UTC days
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a job run again replaces its own part
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",  # jobs show their own
    "spark.log.level": "ERROR",
}


def session(
    app: str = "tapewire",
    master: str = "local[*]",
    *,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """A session that knows the format ``tapewire``; the one under way when there is one.

    Args:
        app: Name of the application.
        master: ``local[*]``: all cores of this machine, nothing to start. ``spark://host:7077``: a
            standalone cluster. ``sc://host:15002``: a Spark Connect server.
        conf: Settings of Spark; they go before those that are made here.
        ui: Serve Spark's own page about what is going on.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session("research", master="local[2]")  # doctest: +SKIP
    """
    from tapewire.spark import register

    builder = SparkSession.builder.appName(app)
    if master.startswith("sc://"):
        spark = builder.remote(master).getOrCreate()
        register(spark)
        return spark
    # The workers of a local session must be the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = dict(_CONF)
    settings["spark.ui.enabled"] = "true" if ui else "false"
    settings["spark.sql.warehouse.dir"] = os.path.join(tempfile.gettempdir(), "tapewire-warehouse")
    if is_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    settings.update(conf or {})
    builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_loopback(master: str) -> bool:
    """Whether all workers of a master are on this machine."""
    if master.startswith("local"):
        return True
    hosts = master.partition("://")[2].split(",")
    return all(host.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]") for host in hosts)
