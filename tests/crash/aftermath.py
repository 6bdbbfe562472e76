"""Open the image of a power failure with readers and writers, and compare it with the model."""

import contextlib
import shutil

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.entries import BASE_NS, Entry, entry, first_at_or_after

STEPS = 100_000  # more than any image needs: a reader that exceeds it is in a loop
NEW_TYPE = 0x7777
NEW_NS = BASE_NS + 10**10  # later than all records, so that an old index does not have it


class Story:
    """The output of a reader from some place to the end: entries and typed errors."""

    def __init__(self):
        self.events = []
        self.places = []  # of the entries: segment and offset

    def take(self, record, position):
        self.events.append(entry(record))
        segment, end = position
        self.places.append((segment, end - qf.record_bytes(len(record))))

    @property
    def shown(self):
        return [event for event in self.events if isinstance(event, Entry)]

    @property
    def numbers(self):
        return [shown.seq for shown in self.shown]


def follow(reader, most=STEPS):
    """Read to the end as a careful program does: continue after gaps and damage."""
    story = Story()
    for _ in range(most):
        try:
            record = reader.next()
        except tw.GapDetected as gap:
            story.events.append(gap)
            continue
        except tw.CorruptRecord as damage:
            story.events.append(damage)
            if reader.skip_damaged().bytes == 0:
                return story
            continue
        except (tw.SegmentMissing, tw.CorruptMetadata) as missing:
            story.events.append(missing)
            return story
        if record is None:
            return story
        story.take(record, reader.position)
    assert most < STEPS, f"no end after {most} steps: {story.events[-3:]}"
    return story


def read_log(directory):
    with tw.open_log(directory) as reader:
        return follow(reader)


def check_shown(story, begun, dense, expected=None):
    """Check that only appended records are shown, in order, and that each hole is reported."""
    warned = False
    for event in story.events:
        if not isinstance(event, Entry):
            warned = True
            continue
        assert event in begun, f"never appended: {event}"
        if expected is not None:
            assert event.seq >= expected, f"expected {expected} or more, got {event.seq}"
            silent = dense and event.seq > expected and not warned
            assert not silent, f"{expected} to {event.seq - 1} are skipped without an error"
        expected = event.seq + 1
        warned = False


def segments_of(directory):
    return {path.name: path.read_bytes() for path in directory.glob("*.q*")}


class Aftermath:
    """Check one image in all ways. `kept`: the records that must exist, by sequence number."""

    def __init__(self, directory, begun, kept, sparse):
        self.directory = directory
        self.begun = set(begun)
        self.kept = kept
        self.dense = not sparse

    def judge(self):
        committed = self.committed()
        before = self.before_recovery()
        if not (self.directory / "control.meta").exists():
            self.begin_again()
            return
        next_seq = self.recover()
        self.recover_again(next_seq)
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(tw.open_publisher(self.directory, preallocate=False))
            assert writer.next_seq == next_seq, f"{next_seq}, and a third time {writer.next_seq}"
            known = [*before.numbers, *self.kept]
            assert next_seq > max(known, default=-1), f"{next_seq} and more are used again"
            end = self.end_of_log()
            # Some readers open before the first new record, one opens later.
            readers = [stack.enter_context(self.resume(name)) for name in {*committed} - {"two"}]
            new = self.go_on(writer)
            # Before a thread has written new indexes: the old ones must do no harm.
            killed = shutil.copytree(self.directory, self.directory / "killed")
            after = read_log(self.directory)
            self.check_log(after, before, new)
            self.check_seeks(killed, after.shown)
            readers += [stack.enter_context(self.resume(name)) for name in {*committed} & {"two"}]
            for reader in readers:
                self.check_resumed(reader, committed[reader.name], end, after)

    def begin_again(self):
        """Without control.meta there is no queue; creating one must work."""
        assert not self.kept, "the queue is gone"
        with tw.open_publisher(self.directory, segment_bytes=8192, preallocate=False) as writer:
            new = self.go_on(writer)
        assert read_log(self.directory).events == new

    def resume(self, name):
        return tw.open_subscriber(self.directory, name)

    def end_of_log(self):
        """Where the writer will continue."""
        control = qf.unpack("ControlBlock", (self.directory / "control.meta").read_bytes())
        return control["current_segment"], control["write_offset"]

    def before_recovery(self):
        """A reader before any writer may get an error, but never an invalid byte."""
        try:
            with tw.open_log(self.directory) as reader:
                story = follow(reader)
                reader.wait(0)
        except (tw.TapewireError, FileNotFoundError):
            return Story()
        check_shown(story, self.begun, self.dense)
        return story

    def recover(self):
        with tw.open_publisher(self.directory, preallocate=False) as writer:
            return writer.next_seq

    def recover_again(self, next_seq):
        repaired = segments_of(self.directory)
        assert (seq := self.recover()) == next_seq, f"{next_seq}, and a second time {seq}"
        again = segments_of(self.directory)
        changed = [name for name in repaired | again if repaired.get(name) != again.get(name)]
        assert not changed, f"a second recovery changed {changed}"

    def go_on(self, writer):
        """Append over a roll, into whatever is stored there."""
        payload = bytes(range(256)) * 4
        first = writer.next_seq
        new = [
            Entry(first + i, NEW_NS + i, NEW_TYPE, 0, payload)
            for i in range(writer.segment_bytes // len(payload) + 2)
        ]
        self.begun.update(new)
        for record in new:
            assert writer.append(NEW_TYPE, payload, timestamp_ns=record.timestamp_ns) == record.seq
            if record is new[0]:  # before it is overwritten: no old record may follow the end
                last = read_log(self.directory).events[-1]
                assert last == record, f"after the first new record: {last!r}"
        return new

    def check_log(self, after, before, new):
        first = qf.segment_ids(self.directory)[0]
        control = qf.unpack("ControlBlock", (self.directory / "control.meta").read_bytes())
        expected = control["first_seq"] if first == 0 else None
        check_shown(after, self.begun, self.dense, expected)
        shown = {record.seq: record for record in after.shown}
        last = after.events[-1]
        for seq, record in self.kept.items():
            assert shown.get(seq) == record, f"acknowledged and lost: {seq}; the last was {last!r}"
        assert after.shown[-len(new) :] == new, f"new records are not reached: {last!r}"
        lost = [record.seq for record in before.shown if shown.get(record.seq) != record]
        assert not lost, f"shown before recovery, not after: {lost}"

    def check_seeks(self, directory, shown):
        """Seek by sequence number and time over the complete log, whatever the indexes contain."""
        times = [record.timestamp_ns for record in shown]
        with tw.open_log(directory) as reader:
            for wanted in shown[:: max(1, len(shown) // 8)]:
                reader.seek_seq(wanted.seq)
                self.check_found(reader, wanted)
                reader.seek_time(wanted.timestamp_ns)
                self.check_found(reader, shown[first_at_or_after(times, wanted.timestamp_ns)])

    @staticmethod
    def check_found(reader, wanted):
        story = follow(reader, 1)
        damaged = any(isinstance(event, tw.CorruptRecord) for event in story.events)
        assert damaged or story.events == [wanted], f"sought {wanted}, found {story.events}"

    def committed(self):
        """By reader: the position in its file, or the beginning."""
        places = {}
        for path in self.directory.glob("readers/*.meta"):
            slot = qf.parse_reader_meta(path.read_bytes().ljust(80, b"\0"))
            places[path.stem] = (slot["segment_id"], slot["offset"]) if slot else (0, 0)
        return places

    def check_resumed(self, reader, committed, end, after):
        """A reader sees all records after its commit, or after the end if that is lost."""
        place = min(committed, end)
        both = zip(after.places, after.numbers, strict=True)
        wanted = [seq for at, seq in both if at >= place]
        story = follow(reader)
        check_shown(story, self.begun, self.dense)
        said = [event for event in story.events if not isinstance(event, Entry)]
        assert story.numbers == wanted, (
            f"reader {reader.name!r}, committed {committed}, the log ended at {end}, "
            f"was shown {story.numbers[:3]}…, not {wanted[:3]}…: {said}"
        )
