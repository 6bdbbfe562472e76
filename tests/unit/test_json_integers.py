"""Integers of any length in all JSON files that Tapewire reads: a typed error, or a finding."""

import copy
import json
import sys
import zlib
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire import bus
from tapewire.archive.job_marks import JobMarks
from tapewire.archive.transaction.job_directories import Jobs
from tapewire.archive.transaction.manifest import Action, Manifest, Manifests
from tapewire.book.gaps import FILE_NAME as LEDGER
from tapewire.book.gaps import Gap, GapLedger
from tapewire.ingest import job as import_job
from tapewire.protocol import json_file, types_file
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.replay.snapshotter import _parse_note
from tapewire.scan import parquet_logs
from tapewire.spark.streaming.checkpoints import CheckpointMark, Checkpoints

LENGTHS = [10_000, 4_301, 4_300, 1_000, 25]  # 4,300 digits: the default limit of `int`
PLACE = "@integer@"


def places(value, at=()):
    """Return the paths to all integers of a document."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            yield from places(each, (*at, key))
    elif type(value) is int:
        yield at


def with_digits(document, place, digits):
    """Return the text of a document with an integer of `digits` digits at a path."""
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = PLACE
    return json.dumps(changed).replace(f'"{PLACE}"', "9" * digits).encode()


def file_types(tmp):
    (tmp / "log").mkdir()
    layout = tw.protocol.MessageLayout.natural("Fill", 0x2001, 1, [("a", tw.protocol.fields.u64)])
    types_file.merge(tmp / "log", [layout])
    return tmp / "log" / "types.json", lambda: types_file.read(tmp / "log")


def file_instruments(tmp):
    Instruments([Instrument.of("binance", "BTCUSDT", tick=1)]).save(tmp)
    return tmp / "instruments.json", lambda: Instruments.load(tmp)


def file_lease(tmp):
    bus.write_lease(tmp)
    return tmp / "LEASE", lambda: bus.read_lease(tmp).alive


def file_import_job(tmp):
    path = tmp / "import.json"
    file = {"name": "a", "size": 1, "sha256": "00"}
    document = {"format": import_job.FORMAT, "version": import_job.VERSION, "importer": "x"}
    more = {"options": {}, "files": [file], "contents": ["00"], "state": "done"}
    more |= {"logs": {"a": 0}, "summary": {}}
    path.write_text(json.dumps(document | more))
    return path, lambda: import_job._read(path)


def file_sink_job(tmp):
    jobs = Jobs(tmp)
    name = jobs.create(None)
    return jobs.directory(name) / "job.json", lambda: jobs._read(name)[0].alive


def file_manifest(tmp):
    manifests = Manifests(tmp)
    action = Action("v1/a", "append", "task-0/a", 1, 1)
    manifests.decide(Manifest("w", "7", "job-1", 1, "00", (action,)))
    (path,) = tmp.rglob("7.*")
    return path, lambda: list(manifests.decided())


def file_mark(tmp):
    done = JobMarks(tmp, "bars")
    done.write("a/b", [{"seq": 1}], {"step": 1}, {"rows": 1})
    return done.path("a/b"), lambda: done.read("a/b")


def typed_error_of(read):
    """Return the error that a reader raises for an invalid file, or None; pass on other errors."""
    try:
        read()
    except (tw.errors.CorruptMetadata, tw.errors.UnsupportedVersion) as error:
        return error
    return None


JSON_FILES = [
    file_types,
    file_instruments,
    file_lease,
    file_import_job,
    file_sink_job,
    file_manifest,
    file_mark,
]


@pytest.mark.parametrize("digits", LENGTHS)
@pytest.mark.parametrize("make", JSON_FILES, ids=lambda make: make.__name__)
def test_a_long_integer_at_any_place_is_a_typed_error_that_names_the_file(tmp, make, digits):
    path, read = make(tmp)
    document = json.loads(path.read_text())
    assert list(places(document))
    read()
    for place in places(document):
        path.write_bytes(with_digits(document, place, digits))
        error = typed_error_of(read)
        if error is None:  # a count for people, which no code uses
            assert digits <= json_file.MAX_DIGITS, place
        else:
            assert error.path == str(path), place
            assert len(str(error)) < 500, place


def ledger_line(body):
    return b'{"crc":"%08x",' % zlib.crc32(body) + body[1:] + b"\n"


@pytest.mark.parametrize("digits", LENGTHS)
def test_a_long_integer_in_a_gap_ledger_is_a_damaged_line(tmp, digits):
    gap = Gap("venue", "binance", "BTCUSDT", "book", 11, 14, seq=7, timestamp_ns=99, cause="c")
    document = {"v": 1, **asdict(gap)}
    lines = [ledger_line(with_digits(document, place, digits)) for place in places(document)]
    (tmp / LEDGER).write_bytes(b"".join(lines))
    scan = GapLedger(tmp).scan()
    assert (scan.gaps, scan.damaged_count) == ([], len(lines))
    assert all(len(damaged.why) < 300 for damaged in scan.damaged)


@pytest.mark.parametrize("digits", LENGTHS)
def test_a_long_integer_in_the_state_file_of_a_snapshotter_is_refused(digits):
    document = {"v": 1, "resume_seq": 1, "last_seq": 1, "timestamp_ns": 1}
    assert _parse_note(ledger_line(json.dumps(document).encode()))
    for place in places(document):
        with pytest.raises(ValueError, match=r"integer too long|members must be|another version"):
            _parse_note(ledger_line(with_digits(document, place, digits)))


@pytest.mark.parametrize("digits", LENGTHS)
def test_a_long_integer_in_the_state_of_a_query_is_skipped(tmp, digits):
    states = Checkpoints(tmp, {})
    states.save_origin("u", {"book": 1})
    states.save("u", CheckpointMark(1000, {"book": 1}), b"state")
    (origin,), (state,) = tmp.rglob("origin.json"), tmp.rglob("*.state")
    assert states.load_origin("u") == {"book": 1}
    origin.write_bytes(with_digits({"book": 1}, ("book",), digits))
    assert states.load_origin("u") == {}
    magic, header, rest = state.read_bytes().split(b"\n", 2)
    for place in places(json.loads(header)):
        changed = with_digits(json.loads(header), place, digits)
        state.write_bytes(b"\n".join([magic, changed, rest]))
        assert states.find("u", CheckpointMark(1000, {"book": 10**30})) is None


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"version": ' + b"1" * 10_000 + b"}"])
def test_a_parquet_file_with_malicious_metadata_is_a_typed_error(tmp, text):
    path = tmp / "part-0.parquet"
    pq.write_table(pa.table({"seq": [1]}).replace_schema_metadata({parquet_logs.META: text}), path)
    with pytest.raises(tw.errors.CorruptMetadata) as caught:
        parquet_logs._read_about(path)
    assert caught.value.path == str(path)


def test_a_lifted_limit_of_the_interpreter_changes_nothing():

    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(ValueError, match="integer too long: digits=10000, max=100"):
            json_file.decode(b"9" * 10_000)
    finally:
        sys.set_int_max_str_digits(before)
    assert json_file.decode(b"9" * 100) == 10**100 - 1
