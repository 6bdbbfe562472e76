"""Progress of a job on standard error: rows, rate and time left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from tapewire.spark.sessions.session import context_of
from tapewire.text import rate_text, span_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "TaskCounts"]

TERMINAL_SECONDS = 0.25
LINE_SECONDS = 10.0


class Progress:
    """Shows the progress of a job in a line: rewritten on a terminal, otherwise one each 10 s.

    Without one, a job prints nothing. A job that is done before the first line is due prints none.

    Args:
        job: The beginning of the line.
        quiet: Print nothing; for ``--json`` and for tests.
        to: Where to print; default: standard error.
        clock: A monotonic clock in seconds.

    Example:
        >>> with Progress("refine", quiet=True) as progress:
        ...     progress.expect(parts=2)
        ...     progress.add(rows=1000, parts=1)
        ...     progress.line(seconds=2.0)
        'refine  1 of 2 parts  1,000 rows  500 rows/s  2.0 s left'
    """

    def __init__(
        self,
        job: str,
        *,
        quiet: bool = False,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.rows = 0
        self.parts = 0
        self.total_parts = 0
        self._expected_rows: int | None = None
        self._quiet = quiet
        self._to = to if to is not None else sys.stderr
        self._clock = clock
        self._started = clock()
        self._task_counts: list[TaskCounts] = []
        self._query: QueryStages | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._width = 0

    def __enter__(self) -> Progress:
        self._started = self._clock()
        if not self._quiet:
            self._thread = threading.Thread(target=self._run, name="tw-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop printing; on a terminal, clear the line."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        if self._width:
            self._print("\r" + " " * self._width + "\r")
            self._width = 0

    @property
    def seconds(self) -> float:
        """Seconds since the job began."""
        return self._clock() - self._started

    def expect(self, parts: int = 0, rows: int | None = None) -> None:
        """Add parts and rows to those expected."""
        with self._lock:
            self.total_parts += parts
            if rows is not None:
                self._expected_rows = (self._expected_rows or 0) + rows

    def add(self, rows: int = 0, parts: int = 0) -> None:
        """Add parts and rows to those done."""
        with self._lock:
            self.rows += rows
            self.parts += parts

    def task_counts(self, spark: SparkSession) -> TaskCounts:
        """A counter for tasks; the counts of a task arrive when it ends.

        With Spark Connect they do not arrive: the line shows the time only.
        """
        counts = TaskCounts(spark)
        with self._lock:
            self._task_counts.append(counts)
        return counts

    @contextlib.contextmanager
    def watching(self, spark: SparkSession, parts: int) -> Iterator[None]:
        """Show the progress of the tasks of one query, which computes this number of parts.

        With Spark Connect tasks cannot be observed; the parts are added when the query has ended.
        """
        context = context_of(spark)
        query = None if context is None else QueryStages(context, parts)
        with self._lock:
            self._query = query
        try:
            yield
        finally:
            with self._lock:
                self._query = None

    def line(self, seconds: float | None = None) -> str:
        """The line."""
        seconds = self.seconds if seconds is None else seconds
        with self._lock:
            rows = self.rows + sum(counts.rows for counts in self._task_counts)
            parts = self.parts + sum(counts.parts for counts in self._task_counts)
            total, expected = self.total_parts, self._expected_rows
            query = self._query
        under_way = query.progress() if query is not None else (0, 0.0)
        rows += under_way[0]
        text = [self.job]
        if total:
            text.append(f"{min(parts, total):,} of {total:,} parts")
        text.append(f"{rows:,} rows")
        text.append(rate_text(rows, seconds))
        done = parts + under_way[1]
        known = [_left(rows, expected, seconds), _left(done, total or None, seconds)]
        if (expected and not rows) or (total and not done and rows == expected):
            known = [None]  # a step has just begun: no rate is known yet
        lefts = [each for each in known if each is not None]
        # The rows of a task arrive when it ends: until then only the time changes.
        unknown = f"? left, {span_text(seconds)} so far"
        text.append(f"{span_text(max(lefts))} left" if lefts else unknown)
        return "  ".join(text)

    def _run(self) -> None:
        terminal = not self._to.closed and self._to.isatty()
        every = TERMINAL_SECONDS if terminal else LINE_SECONDS
        while not self._stop.wait(every):
            line = self.line()
            if terminal:
                self._print("\r" + line.ljust(self._width))
                self._width = max(self._width, len(line))
            else:
                self._print(line + "\n")

    def _print(self, text: str) -> None:
        try:
            self._to.write(text)
            self._to.flush()
        except (OSError, ValueError):
            self._stop.set()  # the output is closed; the job continues

    def __repr__(self) -> str:
        return f"<Progress {self.line()}>"


class QueryStages:
    """The stages of a running Spark query: rows written, and the fraction of tasks done."""

    def __init__(self, context: Any, parts: int) -> None:
        self._store = context._jsc.sc().statusStore()
        self._parts = parts
        self._stages: dict[int, tuple[int, int, int]] = {}

    def progress(self) -> tuple[int, float]:
        """Rows of the tasks that have ended, and the corresponding number of parts."""
        from py4j.protocol import Py4JError

        try:
            found = self._store.activeStages()
            for stage in (found.apply(i) for i in range(found.size())):
                seen = (stage.outputRecords(), stage.numCompleteTasks(), stage.numTasks())
                self._stages[stage.stageId()] = seen
        except Py4JError:  # Java has exited: the query itself raises
            return 0, 0.0
        rows, done, tasks = (
            sum(column) for column in zip((0, 0, 0), *self._stages.values(), strict=True)
        )
        return rows, self._parts * done / tasks if tasks else 0.0


class TaskCounts:
    """Counts rows and parts in tasks; it is pickled with the function that they run."""

    def __init__(self, spark: SparkSession) -> None:
        self._rows: Any = None
        self._parts: Any = None
        context = context_of(spark)
        if context is not None:
            self._rows = context.accumulator(0)
            self._parts = context.accumulator(0)

    def add(self, rows: int = 0, parts: int = 0) -> None:
        """Add to the counts, in a task."""
        if self._rows is not None:
            self._rows.add(rows)
            self._parts.add(parts)

    @property
    def rows(self) -> int:
        """Rows of the tasks that have ended; on the driver."""
        return 0 if self._rows is None else int(self._rows.value)

    @property
    def parts(self) -> int:
        """Parts of the tasks that have ended; on the driver."""
        return 0 if self._parts is None else int(self._parts.value)


def _left(done: float, total: int | None, seconds: float) -> float | None:
    if not total or not done:
        return None
    return max(total - done, 0) * seconds / done
