"""The states that a power failure can leave of a recorded run: any mix of old and new since a sync.

A page has its content at the beginning of its file's last sync, or any later content; a length
likewise. Each change to a directory since its last sync may have reached the disk or not. An
adversary chooses.
"""

import contextlib
import functools
from dataclasses import astuple, dataclass

from tests.crash.recording import PAGE, Directory
from tests.support import queue_format as qf
from tests.support.entries import Entry

SECTOR = 512
LINE = 64
METADATA = (".meta", ".idx", ".lock")


@dataclass(eq=False)
class Doubt:
    """Something with several possible states: the first was synced, the last is the newest."""

    kind: str  # "naming", "size" or "page"
    path: str
    key: tuple
    states: list

    @property
    def is_metadata(self):
        return self.kind != "naming" and self.path.removesuffix(".tmp").endswith(METADATA)


class Crash:
    """A recorded run, cut at some moment."""

    def __init__(self, recording, time):
        self.recording = recording
        self.time = time
        self.view = recording.view_at(time)
        self.doubts = []
        self._durable_names = {}
        self._reachable = {}  # every file that may have a name, and the last one it had
        for path, directory in recording.directories.items():
            self._doubt_names(path, directory)
        for file, path in self._reachable.items():
            self._doubt_file(file, path)

    def _doubt_names(self, path, directory):
        durable = directory.durable(self.time)
        names = {}
        for naming in directory.namings:
            if naming.time > self.time:
                break
            if naming.time <= durable:
                naming.apply(names)
        self._durable_names[path] = names
        prefix = f"{path}/" if path else ""
        for name, file in names.items():
            self._reachable[file] = prefix + name
        for naming in directory.namings:
            if durable < naming.time <= self.time:
                where = prefix + naming.name
                self.doubts.append(Doubt("naming", where, (path, naming), [False, True]))
                if naming.file is not None:
                    self._reachable[naming.file] = where

    def _doubt_file(self, file, path):
        if isinstance(file, Directory):
            return
        durable = file.durable(self.time)
        if len(sizes := file.size.between(durable, self.time)) > 1:
            self.doubts.append(Doubt("size", path, (file,), sizes))
        for number, page in file.pages.items():
            if len(states := page.between(durable, self.time)) > 1:
                self.doubts.append(Doubt("page", path, (file, number), states))

    def image(self, chosen):
        """``{path: bytes}``, or ``{path: None}`` for a directory, in the chosen states."""
        state = {doubt.key: value for doubt, value in zip(self.doubts, chosen, strict=True)}
        image = {}
        for path, directory in self.recording.directories.items():
            if path and path not in image:
                continue  # the directory itself has no name
            names = dict(self._durable_names[path])
            for naming in directory.namings:
                if state.get((path, naming)):
                    naming.apply(names)
            for name, file in names.items():
                where = f"{path}/{name}" if path else name
                image[where] = None if isinstance(file, Directory) else self._content(file, state)
        return image

    def _content(self, file, state):
        durable = file.durable(self.time)
        size = state.get((file,), file.size.between(durable, self.time)[-1])
        content = bytearray(size)
        for number, page in file.pages.items():
            data = state.get((file, number), page.between(durable, self.time)[-1])
            at = number * PAGE
            content[at : at + PAGE] = data[: max(0, min(PAGE, size - at))]
        del content[size:]
        return bytes(content)

    @functools.cached_property
    def whole(self):
        """The image without any loss, as left by a kill of the process."""
        return self.image(newest(self.doubts))

    @functools.cached_property
    def kept(self):
        """By sequence number: acknowledged by a flush, so it must exist whatever is lost."""
        kept = self.view.kept
        if not self.view.options.get("retention"):
            return kept
        # Records that retention had removed may be missing; the others may not.
        first = min((record.seq for _, record in stored_records(self.whole)), default=0)
        return {seq: entry for seq, entry in kept.items() if seq >= first}

    def before_checkpoint(self, image):
        """By sequence number: records of existing segments that the checkpoint covers."""
        checkpoint = image.get("index.meta", b"")
        end = qf.parse_checkpoint(checkpoint) if len(checkpoint) in (24, 40) else None
        return {
            record.seq: Entry(*astuple(record)[1:])
            for name, record in stored_records(self.whole)
            if end and name in image and (int(name[:9]), record.offset) < end
        }


def stored_records(image):
    """``(name of the segment, Stored)`` of the segments that are valid from end to end.

    A run that begins with the image of an earlier failure begins with damage.
    """
    for name in sorted(name for name in image if name.endswith(".q")):
        with contextlib.suppress(ValueError):
            key = qf.unpack("SegmentHeader", image[name])["key"] if len(image[name]) >= 64 else 0
            for record in qf.parse_records(image[name], key=key, segment_id=int(name[:9])):
                if not record.is_pad:
                    yield name, record


def newest(doubts):
    return [doubt.states[-1] for doubt in doubts]


def oldest(doubts):
    return [doubt.states[0] for doubt in doubts]


# ---- adversaries: (random numbers, doubts) -> a state for each doubt ---------------------------


def keep_all(rng, doubts):
    return newest(doubts)


def lose_all(rng, doubts):
    return oldest(doubts)


def any_state(rng, doubts):
    return [rng.choice(doubt.states) for doubt in doubts]


def mostly_kept(rng, doubts):
    share = rng.random() * 0.3
    return [d.states[0] if rng.random() < share else d.states[-1] for d in doubts]


def mostly_lost(rng, doubts):
    share = rng.random() * 0.3
    return [d.states[-1] if rng.random() < share else d.states[0] for d in doubts]


def _but_one(rng, doubts, states, other):
    if doubts:
        one = rng.randrange(len(doubts))
        states[one] = doubts[one].states[other]
    return states


def one_lost(rng, doubts):
    return _but_one(rng, doubts, newest(doubts), 0)


def one_kept(rng, doubts):
    return _but_one(rng, doubts, oldest(doubts), -1)


def names_lost(rng, doubts):
    lose = rng.choice([lambda: True, lambda: rng.random() < 0.5])
    return [d.states[0 if d.kind == "naming" and lose() else -1] for d in doubts]


def names_kept(rng, doubts):
    """Directories are written at once, contents rarely, as with a journal of metadata."""
    kept = rng.random() * 0.5
    return [d.states[-1 if d.kind == "naming" or rng.random() < kept else 0] for d in doubts]


def metadata_lost(rng, doubts):
    return [d.states[0 if d.is_metadata else -1] for d in doubts]


def metadata_kept(rng, doubts):
    """Hints and positions are new, the log is old."""
    kept = rng.random() * 0.7
    return [d.states[-1 if d.is_metadata or rng.random() < kept else 0] for d in doubts]


def some_in_order(rng, doubts):
    """A disk that has written a part of the list, from the front or from the back."""
    place = {d: i for i, d in enumerate(sorted(doubts, key=lambda d: (d.path, d.kind)))}
    cut = rng.randrange(len(doubts) + 1)
    kept = rng.choice([lambda i: i < cut, lambda i: i >= cut])
    return [d.states[-1 if kept(place[d]) else 0] for d in doubts]


def torn(rng, doubts):
    """Pages mixed by the sector, or by the line: one may be stored to while it is being written."""
    states = any_state(rng, doubts)
    grain = rng.choice([SECTOR, LINE])
    for i, doubt in enumerate(doubts):
        if doubt.kind == "page":
            among = doubt.states
            if grain == LINE:  # only the last store can be in progress
                newer = rng.randrange(1, len(among))
                among = among[newer - 1 : newer + 1]
            states[i] = b"".join(rng.choice(among)[at : at + grain] for at in range(0, PAGE, grain))
    return states


ADVERSARIES = (
    keep_all,
    lose_all,
    any_state,
    mostly_kept,
    mostly_lost,
    one_lost,
    one_kept,
    names_lost,
    names_kept,
    metadata_lost,
    metadata_kept,
    some_in_order,
    torn,
)


def write_image(image, directory):
    """Write the files as they would be after the next start of the machine."""
    directory.mkdir(parents=True)
    for path, content in image.items():
        if content is None:
            (directory / path).mkdir()
        else:
            (directory / path).write_bytes(content)
    if len(image.get("control.meta") or b"") == qf.LAYOUTS["ControlBlock"][0]:
        qf.restart_machine(directory)
