"""A complete queue, and functions that open copies of it in which one file is damaged."""

import itertools
import shutil

import tapewire as tw
from tests.support import queue_format as qf

SEGMENT_BYTES = 8192
PATTERNS = (0x01, 0x80, 0xFF)

CONTROL = "control.meta"
READER = "readers/x.meta"
LOCK = "writer.lock"
TAIL = "index.meta"
STATS = "stats.meta"
SEALED, ACTIVE = "000000000.q", "000000002.q"
INDEXES = ("000000000.idx", "000000001.idx", "000000002.idx")
FILES = (CONTROL, READER, LOCK, TAIL, STATS, SEALED, ACTIVE, *INDEXES)
# Files that may be damaged in any way without an error: they are rebuilt.
HINTS = (LOCK, TAIL, STATS, *INDEXES)


def key(record):
    return record.seq, record.timestamp_ns, record.type_id, record.flags, bytes(record.payload)


class Original:
    """A complete queue in memory: its files, its records, and the position of reader `x`."""

    def __init__(self, directory):
        with tw.open_publisher(
            directory, segment_bytes=SEGMENT_BYTES, preallocate=False, index_stride=8, first_seq=5
        ) as writer:
            for n in range(120):
                writer.append(n % 5, bytes([n]) * (n % 130), timestamp_ns=10**18 + n * 7 % 40 + n)
        assert qf.segment_ids(directory) == [0, 1, 2]
        stored = qf.stored_records(directory)
        self.records = [(r.seq, r.timestamp_ns, r.type_id, r.flags, r.payload) for _, r in stored]
        self.without_last_segment = self.records[: sum(segment != 2 for segment, _ in stored)]
        (directory / "readers").mkdir()
        self.resumes = []
        slots = []
        for generation, index in ((6, 20), (7, 50)):
            segment, record = stored[index]
            slots.append(qf.reader_slot(segment, record.offset, generation))
            self.resumes.insert(0, self.records[index:])
        (directory / READER).write_bytes(qf.reader_meta(*slots))
        self.files = {name: (directory / name).read_bytes() for name in FILES}
        self.files["000000001.q"] = (directory / "000000001.q").read_bytes()

    def write(self, directory):
        (directory / "readers").mkdir(parents=True)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory


def drain(reader):
    """Every record up to the end of the log; a wait that finds damage raises."""
    records = [key(record) for record in reader]
    reader.wait(0)
    return records


def by_log(directory):
    with tw.open_log(directory) as reader:
        return drain(reader)


def by_name(directory):
    with tw.open_subscriber(directory, "x") as reader:
        return drain(reader)


def by_writer(directory):
    with tw.open_publisher(directory, preallocate=False):
        pass
    return by_log(directory)


def assert_typed(error):
    """The error is of a public type, names the file, and has a remedy if it is damage."""
    assert isinstance(error, tw.TapewireError | OSError), repr(error)
    if isinstance(error, tw.TapewireError):
        assert error.path, repr(error)
        assert error.path in str(error)
        if not isinstance(error, OSError):
            assert error.hint, repr(error)
    else:
        assert error.filename


def outcome(open_and_read, directory):
    """The records, or the typed error."""
    try:
        return open_and_read(directory)
    except Exception as error:
        assert_typed(error)
        return error


def survey(original, directory, *, lenient_resume=False, must_open=False, wiped=False):
    """Open the directory in every way; the results.

    `wiped`: the last segment is all zeros, as after a power failure before its first sync. Readers
    get an error, and a writer continues after the records that exist.
    """
    whole = original.records
    # An empty file is that of a new reader, which starts at the earliest record.
    resumes = [*original.resumes, whole] if lenient_resume else original.resumes[:1]
    repaired = [whole, original.without_last_segment] if wiped else [whole]
    found = [outcome(by_log, directory), outcome(by_name, directory), outcome(by_writer, directory)]
    for records, right in zip(found, ([whole], resumes, repaired), strict=True):
        if isinstance(records, Exception):
            assert not must_open, repr(records)
        else:
            assert records in right, f"{len(records)} records"
    return found


def damaged_in(original, tmp, name, data, **options):
    """Survey a copy in which one file has these bytes."""
    directory = original.write(tmp / "q")
    (directory / name).write_bytes(data)
    try:
        return survey(original, directory, lenient_resume=name == READER, **options)
    finally:
        shutil.rmtree(directory)


def flips(data, positions, patterns=PATTERNS):
    for position, pattern in itertools.product(positions, patterns):
        changed = bytearray(data)
        changed[position] ^= pattern
        yield f"byte {position} ^ {pattern:#x}", bytes(changed)


def lengths(name, data):
    """Lengths to truncate to: all of a small file, selected ones of a large file."""
    if len(data) <= 160:
        return range(len(data))
    near = {0, 1, 4, 8, 63, 64, 65, 79, 80, 81, 127, 128, 129, 255, 256, 384, 511, 4095, 4096, 8191}
    return sorted(n for n in near | {len(data) - 1, len(data) - 16} if n < len(data))


def run_all(original, tmp, name, cases, **options):
    results = {}
    for what, data in cases:
        try:
            results[what] = damaged_in(original, tmp, name, data, **options)
        except AssertionError as error:
            raise AssertionError(f"{name}, {what}: {error}") from error
    return results
