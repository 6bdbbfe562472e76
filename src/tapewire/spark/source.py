"""The format ``tapewire``: Spark creates a `TapewireSource` for each query."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from tapewire.scan.instruments import given_instruments
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.spark import views
from tapewire.spark.reading import schemas
from tapewire.spark.reading.live_queues import refuse_live
from tapewire.spark.sessions.masters import is_loopback
from tapewire.spark.sessions.session import context_of, parallelism_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["TapewireSource", "register", "source_for"]


class TapewireSource(DataSource):
    """The source and sink of logs. Spark creates one for each query, in a separate process."""

    # Known to the session, not available in the process of a query; set by `source_for`.
    master: ClassVar[str | None] = None
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tapewire"

    def schema(self) -> StructType:
        """The columns of the view, or those of option `columns`."""
        options = self._options()
        columns = views.find(options.view).schema(options, self._logs(options))
        return schemas.struct_type(schemas.select(columns, options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        from tapewire.spark.reading.batch import BatchReader

        options, columns, logs = self._resolved(schema)
        refuse_live(logs, options, self.master)
        return BatchReader(options, columns, logs, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query, or one whose methods raise the error of its creation.

        If this method raised, PySpark would report an error of its own instead: it would try to
        stop a reader that does not exist.
        """
        from tapewire.spark.streaming.stream_reader import FailedStreamReader

        try:
            return self._stream_reader(schema)
        except Exception as error:
            return FailedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from tapewire.spark.streaming import stream_reader

        options, columns, logs = self._resolved(schema)
        refuse_live(logs, options, self.master)
        return stream_reader.reader(options, columns, self.parallelism, self.master)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        from tapewire.spark.sink.writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        from tapewire.spark.sink.writers import StreamWriter

        return StreamWriter(self.options, schema, overwrite)

    def _options(self) -> ReadOptions:
        options = ReadOptions.parse(self.options)
        given_instruments(options)  # report a missing file here, not in a task
        return options

    def _logs(self, options: ReadOptions) -> list[LogRef]:
        return resolve(options.paths, options)

    def _resolved(
        self, schema: StructType
    ) -> tuple[ReadOptions, tuple[schemas.ViewColumn, ...], list[LogRef]]:
        options = self._options()
        logs = self._logs(options)
        known = views.find(options.view).schema(options, logs)
        columns = schemas.match_schema(known, schema)
        names = tuple(column.name for column in columns)
        return options.from_here().replace(columns=names), columns, logs


def register(spark: SparkSession) -> None:
    """Register the format with a session. Registering again replaces it.

    In a thread without an active session, this session becomes the active one: when a DataFrame
    is written, Spark looks for formats only there.
    """
    _use_running_interpreter(spark)
    with _as_active_session(spark):
        spark.dataSource.register(source_for(spark))


def _use_running_interpreter(spark: SparkSession) -> None:
    """Make workers on this machine use the running interpreter, unless one was configured.

    A session that was not created by `session` uses the first ``python3`` on the path, which
    outside an activated environment does not have Tapewire.
    """
    context: Any = context_of(spark)
    chosen = "PYSPARK_PYTHON" in os.environ
    if context is None or chosen or context.pythonExec != "python3" or not sys.executable:
        return
    if is_loopback(context.master):
        context.pythonExec = sys.executable


@contextlib.contextmanager
def _as_active_session(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one, temporarily; permanently in a thread that has none.

    Spark checks in the active session whether a format is registered already, and would refuse to
    register it with a second session.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:  # a Connect session
        yield
        return
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())


def source_for(spark: SparkSession) -> type[TapewireSource]:
    """The source class of one session.

    A query is planned in a process that has no session, so the class that is sent there carries
    the master and the number of cores.
    """
    known: dict[str, Any] = {
        "master": spark.conf.get("spark.master", None),
        "parallelism": parallelism_of(spark),
        "__module__": "__main__",  # so that cloudpickle sends the class by value
        "__doc__": TapewireSource.__doc__,
    }
    return type("TapewireSource", (TapewireSource,), known)
