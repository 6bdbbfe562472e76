"""Imports in processes of their own, to be killed."""

import os
import signal

from tapewire import ingest
from tapewire.ingest.log_writer import LogWriter


def run_import(line, format, files, to, **options):
    """Says "started", imports, says "chunk" after each, and what it did."""
    line.say("started")
    told = ingest.run(format, files, to, progress=lambda _: line.say("chunk"), **options)
    line.say("done", told.as_dict())


def import_until(line, step, format, files, to):
    """The same, and kills itself at the `step`-th step that leaves a trace on disk.

    Steps are before and after each sync, each rename and each append.
    """
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(function):
        def stepped(*arguments, **options):
            count()
            result = function(*arguments, **options)
            count()
            return result

        return stepped

    os.fsync = stepping(os.fsync)
    os.rename = stepping(os.rename)
    LogWriter.append = stepping(LogWriter.append)
    run_import(line, format, files, to)
