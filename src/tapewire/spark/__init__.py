"""Spark over the tape: a source, a sink, and jobs. The only part that knows pyspark.

Example:
    >>> from tapewire import spark as tws
    >>> spark = tws.session("research", master="local[2]")  # doctest: +SKIP
    >>> spark.read.format("tapewire").load("bus/md").count()  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("Spark is an extra: pip install 'tapewire[spark]'") from error

from tapewire.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Have a session know the format ``tapewire``; one that does already is told anew.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> from tapewire import spark as tws
        >>> spark = SparkSession.builder.getOrCreate()  # doctest: +SKIP
        >>> tws.register(spark)  # doctest: +SKIP
    """
    from tapewire.spark import source

    source.register(spark)
