"""Run a program under `recorder.c` and read its log: what was stored, named and synced, and when.

Times are places in the log. At any crash after a sync of a file, each page has its content at the
*beginning* of that sync or later; the same holds for the entries of a directory.
"""

import atexit
import bisect
import collections
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crash.crew import ROOT
from tests.support.entries import Entry

PAGE = 4096
ENTRY = struct.Struct("<IIQQ")


class Versions:
    """The values of something over time; `unborn` before the first."""

    def __init__(self, unborn):
        self._times = [-1]
        self._values = [unborn]

    def add(self, time, value):
        if value != self._values[-1]:
            self._times.append(time)
            self._values.append(value)

    def between(self, durable, crash):
        """Its value at `durable`, and all later values up to `crash`."""
        first = bisect.bisect_right(self._times, durable) - 1
        return self._values[max(first, 0) : bisect.bisect_right(self._times, crash)]


@dataclass(eq=False)
class Synced:
    """Something that can be synced, with begin and end of each sync."""

    syncs: list = field(default_factory=list)

    def durable(self, crash):
        """The time before which nothing can be lost by a crash at `crash`."""
        return max((begin for begin, end in self.syncs if end <= crash), default=-1)


@dataclass(eq=False)
class File(Synced):
    """A file, whatever its name: every version of its pages and of its length."""

    pages: dict = field(default_factory=dict)
    size: Versions = field(default_factory=lambda: Versions(0))

    def page(self, number):
        return self.pages.setdefault(number, Versions(bytes(PAGE)))


@dataclass(frozen=True)
class Naming:
    """A change to a directory: `name` refers to `file` (None: removed), and `old` is removed."""

    time: int
    name: str
    file: object
    old: str | None = None

    def apply(self, names):
        names.pop(self.old, None)
        names.pop(self.name, None)
        if self.file is not None:
            names[self.name] = self.file


@dataclass(eq=False)
class Directory(Synced):
    """A directory: the changes to its names, in order."""

    namings: list = field(default_factory=list)


class Recording:
    """One recorded run, of one or more processes one after the other."""

    def __init__(self, log, before=None):
        """`before`: the notes about the queue that the run begins with."""
        self.log = Path(log)
        self.before = before or ModelView()
        self.directories = {"": Directory()}
        self.notes = []  # (time, note of the program)
        self.calls = collections.Counter()  # by name, of those that succeeded
        self.moments = []  # times at which a crash is checked
        self._by_inode = {}
        self._begun = {}
        self._found = []
        data = self.log.read_bytes()
        at = time = 0
        while at < len(data):
            kind, length, inode, number = ENTRY.unpack_from(data, at)
            at += ENTRY.size
            self._take(chr(kind), inode, number, data[at : at + length], time)
            at += length
            time += 1

    def _take(self, kind, inode, number, payload, time):
        match kind:
            case "P":
                page = payload.ljust(PAGE, b"\0")
                self._by_inode[inode].page(number).add(time, page)
                return
            case "S":
                self._by_inode[inode].size.add(time, number)
                return
            case "F":  # exists at the start of a process; at the first one's start, it is on disk
                if inode not in self._by_inode:
                    self._found.append(self._make(inode, number, payload.decode(), time))
                return
            case "A":  # all existing files have been logged
                for found in self._found:
                    found.syncs.append((time, time))
                self._found.clear()
                self._begun.clear()
                return
            case "C":
                self._make(inode, number, payload.decode(), time)
                self.calls["mkdir"] += number
            case "R":
                self.calls["rename"] += 1
                old, name = payload.decode().split("|")
                directory, old = self._split(old)
                _, name = self._split(name)
                directory.namings.append(Naming(time, name, self._by_inode[inode], old))
            case "U":
                self.calls["unlink"] += 1
                directory, name = self._split(payload.decode())
                directory.namings.append(Naming(time, name, None))
            case "B":
                self._begun[number] = time
            case "E":
                self._by_inode[inode].syncs.append((self._begun.pop(number), time))
                self.calls[payload.decode()] += 1
            case "T":
                self.calls[payload.decode()] += 1
            case "N":
                self.notes.append((time, json.loads(payload)))
            case _:
                raise ValueError(f"unknown entry {kind!r} in {self.log}")
        self.moments.append(time)

    def _split(self, path):
        directory, _, name = path.rpartition("/")
        return self.directories[directory], name

    def _make(self, inode, is_directory, path, time):
        if is_directory:
            made = self.directories[path] = Directory() if path else self.directories[""]
        else:
            made = File()
        self._by_inode[inode] = made
        if path:
            directory, name = self._split(path)
            directory.namings.append(Naming(time, name, made))
        return made

    @functools.cached_property
    def views(self):
        """The model's view after each note."""
        view, views = self.before, []
        for time, note in self.notes:
            view = view.then(note)
            views.append((time, view))
        return views

    def view_at(self, time):
        index = bisect.bisect_right(self.views, time, key=lambda view: view[0])
        return self.views[index - 1][1] if index else self.before


@dataclass(frozen=True)
class ModelView:
    """The notes of the recorded program up to some moment."""

    begun: frozenset = frozenset()  # every record whose append was begun
    log: dict = field(default_factory=dict)  # by sequence number: the expected log
    kept: dict = field(
        default_factory=dict
    )  # by sequence number: acknowledged by a flush that returned
    options: dict = field(default_factory=dict)

    def then(self, note):
        begun, log, kept, options = self.begun, self.log, self.kept, self.options
        match note:
            case {"about": records}:
                fresh = entries_of(records)
                begun = begun | set(fresh)
                log = log | {entry.seq: entry for entry in fresh}
            case {"holds": records}:  # a new writer has found these
                log = {entry.seq: entry for entry in entries_of(records)}
            case {"acked": upto}:
                kept = {seq: entry for seq, entry in log.items() if seq < upto}
            case {"options": options}:
                pass
        return ModelView(begun, log, kept, options)


def entries_of(records):
    return [Entry(*fields, bytes.fromhex(payload)) for *fields, payload in records]


@functools.cache
def recorder():
    """`recorder.c` as a library to preload."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler (cc)")
    directory = tempfile.mkdtemp(prefix="tapewire-recorder-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library = Path(directory) / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    options = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", library, source, "-ldl"], check=True)
    return library


def record(queue, log, program, *arguments, before=()):
    """Record `program` (a module of this directory, with its arguments) at the end of the log."""
    env = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        OPENBLAS_NUM_THREADS="1",
        LD_PRELOAD=str(recorder()),
        TAPEWIRE_RECORD_ROOT=str(queue),
        TAPEWIRE_RECORD_LOG=str(log),
    )
    command = [sys.executable, "-m", f"tests.crash.{program}", str(queue), *map(str, arguments)]
    done = subprocess.run(
        [*before, *command],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, -9), f"ended with {done.returncode}:\n{done.stderr}"
    return done.returncode
