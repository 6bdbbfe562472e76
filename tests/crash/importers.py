"""Imports in separate processes, to be killed."""

from tapewire import ingest
from tapewire.archive.log_writer import LogWriter
from tests.crash.steps import Steps


def run_import(line, format, files, to, **options):
    """Say "started", import, say "chunk" after each chunk, and "done" with the summary."""
    line.say("started")
    summary = ingest.run(format, files, to, progress=lambda _: line.say("chunk"), **options)
    line.say("done", summary.to_dict())


def import_until(line, step, format, files, to, **options):
    """Likewise, but the process kills itself at the `step`-th step that changes the disk.

    Steps are before and after each sync, each rename and each append.
    """
    Steps(step, (LogWriter, "append"))
    run_import(line, format, files, to, **options)
