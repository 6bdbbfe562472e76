"""The progress line of a job."""

import io

from tapewire.spark.jobs import progress as progress_module
from tapewire.spark.jobs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_time_left_is_that_of_rows_or_of_parts_whichever_is_longer():
    progress = Progress("bars", quiet=True)
    progress.expect(parts=10, rows=1000)
    progress.add(rows=250, parts=1)
    assert progress.line(seconds=5) == "bars  1 of 10 parts  250 rows  50 rows/s  45.0 s left"


def test_time_left_follows_the_parts_if_no_rows_are_expected():
    progress = Progress("bars", quiet=True)
    progress.expect(parts=4)
    assert progress.line(seconds=5).endswith("? left, 5.0 s so far")
    progress.add(parts=1)
    assert progress.line(seconds=5).endswith("15.0 s left")


def test_time_left_remains_while_parts_are_left():
    progress = Progress("refine", quiet=True)
    progress.expect(rows=100)
    progress.add(rows=100)
    progress.expect(parts=4)
    assert progress.line(seconds=5).endswith("? left, 5.0 s so far")
    progress.add(parts=2)
    assert progress.line(seconds=5).endswith("5.0 s left")


def test_a_terminal_has_one_line_which_is_cleared(eventually, monkeypatch):
    monkeypatch.setattr(progress_module, "TERMINAL_SECONDS", 0.001)
    to = Terminal()
    with Progress("bars", to=to) as progress:
        progress.add(rows=5)
        eventually(lambda: to.getvalue().count("\r") > 2)
    assert "\n" not in to.getvalue()
    assert to.getvalue().rpartition("\r")[0].endswith(" ")


def test_a_file_has_lines(eventually, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.001)
    to = io.StringIO()
    with Progress("bars", to=to):
        eventually(lambda: to.getvalue().count("\n") > 2)
    assert "\r" not in to.getvalue()


def test_quiet_prints_nothing(monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.001)
    to = io.StringIO()
    with Progress("bars", quiet=True, to=to) as progress:
        progress.add(rows=5)
    assert to.getvalue() == ""


def test_a_closed_output_does_not_end_the_job(eventually, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.001)
    to = io.StringIO()
    to.close()
    with Progress("bars", to=to) as progress:
        eventually(lambda: not progress._thread.is_alive())
        progress.add(rows=1)
    assert progress.rows == 1


class Stage:
    """A stage as in the status store of Spark."""

    def __init__(self, stage_id, rows, done, tasks):
        self.stageId, self.outputRecords = (lambda: stage_id), (lambda: rows)
        self.numCompleteTasks, self.numTasks = (lambda: done), (lambda: tasks)


class FakeSpark:
    """A session with stages set by a test."""

    def __init__(self):
        self.stages = []
        self._sc = self._jsc = self

    def sc(self):
        return self

    def statusStore(self):
        return self

    def activeStages(self):
        return self

    def size(self):
        return len(self.stages)

    def apply(self, i):
        return self.stages[i]


def test_a_running_query_shows_rows_and_time_left_by_its_tasks():
    progress, spark = Progress("bars", quiet=True), FakeSpark()
    progress.expect(parts=2)
    with progress.watching(spark, parts=2):
        assert (
            progress.line(seconds=5) == "bars  0 of 2 parts  0 rows  0 rows/s  ? left, 5.0 s so far"
        )
        spark.stages = [Stage(7, rows=1000, done=1, tasks=4)]
        line = "bars  0 of 2 parts  1,000 rows  200 rows/s  15.0 s left"
        assert progress.line(seconds=5) == line
        spark.stages = []  # it has ended; the next has not begun
        assert progress.line(seconds=5) == line
    progress.add(rows=4000, parts=2)
    assert progress.line(seconds=5) == "bars  2 of 2 parts  4,000 rows  800 rows/s  0.0 s left"
