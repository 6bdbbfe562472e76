"""Imports in processes of their own, to be killed."""

from tapewire import ingest
from tapewire.archive.log_writer import LogWriter
from tests.crash.steps import Steps


def run_import(line, format, files, to, **options):
    """Says "started", imports, says "chunk" after each, and what it did."""
    line.say("started")
    told = ingest.run(format, files, to, progress=lambda _: line.say("chunk"), **options)
    line.say("done", told.to_dict())


def import_until(line, step, format, files, to, **options):
    """The same, and kills itself at the `step`-th step that leaves a trace on disk.

    Steps are before and after each sync, each rename and each append.
    """
    Steps(step, (LogWriter, "append"))
    run_import(line, format, files, to, **options)
