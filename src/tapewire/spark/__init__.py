"""Tapewire on Spark: a source, a sink, and jobs. The only package that imports pyspark.

Example:
    >>> from tapewire import spark as tws
    >>> spark = tws.session("research", master="local[2]")  # doctest: +SKIP
    >>> spark.read.format("tapewire").load("bus/md").count()  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("Spark is an extra: pip install 'tapewire[spark]'") from error

from tapewire.spark.sessions.packed_environment import pack
from tapewire.spark.sessions.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["jobs", "pack", "register", "session"]


def __getattr__(name: str) -> Any:
    """Import `jobs` on first use, so that workers import less."""
    if name == "jobs":
        return importlib.import_module("tapewire.spark.jobs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Register the format ``tapewire`` with a session. Registering again replaces it.

    A thread of your own that writes must make this call too, once: Spark looks for the format of
    a ``df.write`` in the session that is active in the thread, and a new thread has none.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> from tapewire import spark as tws
        >>> spark = SparkSession.builder.getOrCreate()  # doctest: +SKIP
        >>> tws.register(spark)  # doctest: +SKIP
    """
    from tapewire.spark import source

    source.register(spark)
