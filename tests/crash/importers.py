"""Imports in separate processes, to be killed."""

from tapewire import ingest
from tapewire.ingest.log_writer import LogWriter
from tests.crash.steps import Steps


def run_import(line, format, files, to, **options):
    """Send "started", import, send "chunk" after each chunk, and the result at the end."""
    line.say("started")
    told = ingest.run(format, files, to, progress=lambda _: line.say("chunk"), **options)
    line.say("done", told.as_dict())


def import_until(line, step, format, files, to, **options):
    """The same; kills itself at the `step`-th step that changes the disk.

    Steps are before and after each sync, each rename and each append.
    """
    Steps(step, (LogWriter, "append"))
    run_import(line, format, files, to, **options)
